//! The consent before several jobs or nodes are changed.

use anyhow::{Result, bail};
use std::io::{self, BufRead, IsTerminal, Write};

/// Returns if the user consents: by `--yes`, or by an answer on the terminal.
pub(crate) fn ask(yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        bail!("nothing was changed: several are changed only with --yes");
    }
    eprint!("Continue? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match is_yes(&answer) {
        true => Ok(()),
        false => bail!("nothing was changed"),
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_a_clear_yes_is_a_consent() {
        for (answer, wanted) in [
            ("y\n", true),
            ("Yes\r\n", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("yellow\n", false),
        ] {
            assert_eq!(is_yes(answer), wanted, "{answer:?}");
        }
    }
}
