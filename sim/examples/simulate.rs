//! `muster simulate` without the rest of `muster`, which builds faster.

use clap::Parser;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    simulate: sim::Simulate,
}

fn main() -> Result<(), sim::SimulationError> {
    Arguments::parse().simulate.run(&mut std::io::stdout())
}
