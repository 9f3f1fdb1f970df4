//! The rendezvous of a training program: all processes of a gang meet at rank 0, by the variables
//! that PyTorch reads, and reduce a number over all of them.
//!
//! It prints `rank R of N: sum S`, where S is the sum of all ranks from 0 to N-1. It fails if a
//! rank is missing, appears twice, or was given a different size.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// The timeout for the other processes.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> Result<()> {
    let address = variable("MASTER_ADDR")?;
    let port: u16 = variable("MASTER_PORT")?.parse()?;
    let rank: u64 = variable("RANK")?.parse()?;
    let size: u64 = variable("WORLD_SIZE")?.parse()?;
    ensure!(rank < size, "rank {rank} of {size}");
    let sum = match rank {
        0 => lead(port, size)?,
        _ => follow(&address, port, rank, size)?,
    };
    println!("rank {rank} of {size}: sum {sum}");
    Ok(())
}

fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

/// Receives every other rank once, and sends them the sum.
fn lead(port: u16, size: u64) -> Result<u64> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let mut ranks = BTreeSet::from([0]);
    let mut peers = Vec::new();
    while (ranks.len() as u64) < size {
        let (peer, _) = listener.accept()?;
        peer.set_read_timeout(Some(LIMIT))?;
        let mut line = String::new();
        BufReader::new(&peer).read_line(&mut line)?;
        let (rank, told) = line.trim().split_once(' ').context("no rank")?;
        let (rank, told): (u64, u64) = (rank.parse()?, told.parse()?);
        ensure!(told == size, "rank {rank} was told of {told}, not {size}");
        ensure!(ranks.insert(rank), "rank {rank} is there twice");
        peers.push(peer);
    }
    let sum = ranks.iter().sum();
    for mut peer in peers {
        writeln!(peer, "{sum}")?;
    }
    Ok(sum)
}

/// Sends its rank to rank 0, and receives the sum.
fn follow(address: &str, port: u16, rank: u64, size: u64) -> Result<u64> {
    let start = Instant::now();
    let mut leader = loop {
        match TcpStream::connect((address, port)) {
            Ok(leader) => break leader,
            Err(error) => ensure!(start.elapsed() < LIMIT, "{address}:{port}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    leader.set_read_timeout(Some(LIMIT))?;
    writeln!(leader, "{rank} {size}")?;
    let mut line = String::new();
    BufReader::new(leader).read_line(&mut line)?;
    Ok(line.trim().parse()?)
}
