//! Prints errors for a human reader.
//!
//! The driver's error for a failed command contains the server's whole reply in hex, and its error for a server that
//! was not found contains everything it knows about the set. This module makes one sentence of each.

use std::{fmt::Write as _, io, process::ExitCode};

use mongodb::error::{Error as DriverError, ErrorKind};

/// The exit code for an error in any tool. Exit code 1 is a valid result: `diff` found differences, `status` found a
/// problem.
pub(crate) const TROUBLE: u8 = 2;
/// The exit code if the reader of the output has closed the pipe: the one a shell shows for a program ended by
/// SIGPIPE.
pub(crate) const NOBODY_READS: u8 = 141;

/// Prints an error and returns its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if nobody_reads(error) {
        // An error without context comes from something like `| head`. With a context, something was left undone
        // because of it.
        if error.chain().count() > 1 {
            eprintln!("{}", words(error));
        }
        return ExitCode::from(NOBODY_READS);
    }
    eprintln!("{}", words(error));
    ExitCode::from(TROUBLE)
}

fn nobody_reads(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// The whole error chain in one line, with the driver's errors in plain words.
pub fn words(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let driver = cause.downcast_ref::<DriverError>();
        let said = driver.map_or_else(|| cause.to_string(), driver_words);
        // Writing to a String cannot fail.
        let _ = write!(text, "{}{said}", if text.is_empty() { "" } else { ": " });
        if driver.is_some() {
            break;
        }
    }
    text
}

fn driver_words(error: &DriverError) -> String {
    match &*error.kind {
        ErrorKind::Command(failed) => {
            format!("{} ({}, code {})", failed.message, failed.code_name, failed.code)
        }
        ErrorKind::Authentication { message, .. } => {
            format!("the login failed ({message}); check user, password and authSource")
        }
        ErrorKind::ServerSelection { message, .. } => {
            let why = why_not_selected(message);
            format!(
                "somebody listens there, but no server that fits was found{why}; check that it is a MongoDB server, that \
                 the connection string has tls=true if the server wants TLS, and that the set has a primary if it is to \
                 be written to"
            )
        }
        ErrorKind::Io(io) => format!("the connection failed: {io}"),
        ErrorKind::DnsResolve { message, .. } => {
            format!("the name of the host is not known ({message}); check its spelling")
        }
        other => other.to_string(),
    }
}

/// The first cause in the driver's description of the set.
fn why_not_selected(message: &str) -> String {
    let Some((_, rest)) = message.split_once("Error: ") else { return String::new() };
    let why = rest.split(", labels:").next().unwrap_or(rest).trim_start_matches("Kind: ");
    let why: String = why.chars().take_while(|c| !matches!(c, '\n' | '}')).take(200).collect();
    format!(" ({})", why.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_reader_that_left_is_told_from_other_trouble() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(nobody_reads(&broken().into()));
        let left_undone = Err::<(), _>(broken()).context("shop.orders is not whole").unwrap_err();
        assert!(nobody_reads(&left_undone));
        assert!(!nobody_reads(&anyhow::anyhow!("broken pipe")));
    }

    #[test]
    fn the_chain_is_one_line() {
        let cause = io::Error::other("disk full");
        let error = Err::<(), _>(cause).context("write state.json").unwrap_err();
        assert_eq!(words(&error), "write state.json: disk full");
    }

    #[test]
    fn the_first_cause_is_taken_out_of_the_drivers_picture() {
        let picture = "Server selection timeout: No available servers. Topology: { Type: Single, Servers: [ { Address: \
                       h:1, Type: Unknown, Error: Kind: I/O error: unexpected end of file, labels: {} } ] }";
        assert_eq!(why_not_selected(picture), " (I/O error: unexpected end of file)");
        assert_eq!(why_not_selected("nothing known"), "");
    }
}
