//! `muster simulate` without the rest of `muster`: quick to build.

use clap::Parser;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    simulate: sim::Simulate,
}

fn main() -> Result<(), sim::SimulationError> {
    Arguments::parse().simulate.run(&mut std::io::stdout())
}
