//! The rendezvous of a TensorFlow program: each process of a gang listens at the address that
//! `TF_CONFIG` gives it, and connects to every other process at the address given there.
//!
//! It prints `TYPE INDEX of N: all there`, and fails if a process is missing or another one
//! answers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The timeout for the other processes.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> Result<()> {
    let config: Value = serde_json::from_str(&std::env::var("TF_CONFIG")?)?;
    ensure!(config["environment"] == "cloud", "{config}");
    let mut tasks = Vec::new();
    for (group, addresses) in config["cluster"].as_object().context("no cluster")? {
        for (index, address) in addresses.as_array().into_iter().flatten().enumerate() {
            let address = address.as_str().context("no address")?.to_owned();
            tasks.push((format!("{group} {index}"), address));
        }
    }
    let task = &config["task"];
    let group = task["type"].as_str().context("no type")?;
    let own = format!("{group} {}", task["index"].as_u64().context("no index")?);
    let (_, address) = tasks
        .iter()
        .find(|(name, _)| *name == own)
        .with_context(|| format!("{own} is not in the cluster"))?;
    let (port, size) = (address.rsplit_once(':').context("no port")?.1, tasks.len());
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?))?;
    let name = own.clone();
    let told = thread::spawn(move || tell(&listener, &name, size - 1));
    for (name, address) in tasks.iter().filter(|(name, _)| *name != own) {
        let there = find(address)?;
        ensure!(there == *name, "{there} is at {address}, not {name}");
    }
    told.join().ok().context("cannot send the name")??;
    println!("{own} of {size}: all there");
    Ok(())
}

/// Sends the name of this process to each of the others.
fn tell(listener: &TcpListener, name: &str, others: usize) -> Result<()> {
    for _ in 0..others {
        let (mut other, _) = listener.accept()?;
        writeln!(other, "{name}")?;
    }
    Ok(())
}

/// Returns the name of the process at an address.
fn find(address: &str) -> Result<String> {
    let start = Instant::now();
    let other = loop {
        match TcpStream::connect(address) {
            Ok(other) => break other,
            Err(error) => ensure!(start.elapsed() < LIMIT, "{address}: {error}"),
        }
        thread::sleep(Duration::from_millis(50));
    };
    other.set_read_timeout(Some(LIMIT))?;
    let mut line = String::new();
    BufReader::new(other).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
