//! The output of a tool: text or JSON, in which time zone, with or without notes.
//!
//! ```text
//!   row, say   ---> standard output: the result                --json: only rows, one JSON document per line
//!   note, bar  ---> standard error: progress, for a human      --quiet and --json: nothing
//! ```
//!
//! If the reader closes the pipe (`| head`), [`Screen::row`] and [`Screen::say`] return an error for which
//! [`crate::complaint`] ends the tool silently.

use std::{
    fmt::Display,
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use anyhow::{Result, bail};
use bson::{DateTime, Document};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use protocol::{
    Timestamp,
    moment::{Moment, MomentError, Zone},
};

/// Options that every tool has.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Look {
    /// Read times that name no zone as UTC, and show times in UTC.
    #[arg(long, global = true)]
    pub utc: bool,
    /// Print one JSON document a line instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print the answer alone: no notes, no progress.
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// The terminal, or a replacement for tests.
pub struct Screen {
    out: Box<dyn Write>,
    /// Where answers to questions are read from; `None` if standard input is not a terminal.
    answers: Option<Box<dyn BufRead>>,
    look: Look,
    colours: bool,
    zone: Zone,
    now: DateTime,
}

/// The style of a text on a terminal with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// For errors and removed things.
    Red,
    /// For success and added things.
    Green,
    /// For things that need attention.
    Yellow,
    /// For headings.
    Bold,
}

impl Screen {
    /// Uses standard output and standard input.
    pub fn new(look: Look) -> Self {
        let colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let answers = io::stdin().is_terminal().then(|| Box::new(io::stdin().lock()) as _);
        Self {
            out: Box::new(io::stdout().lock()),
            answers,
            look,
            colours,
            zone: if look.utc { Zone::utc() } else { Zone::system() },
            now: DateTime::now(),
        }
    }

    /// True if JSON output was requested.
    pub(crate) fn is_json(&self) -> bool {
        self.look.json
    }

    /// Prints a part of the result, as JSON or as text.
    pub fn row(&mut self, json: &Document, text: impl Display) -> io::Result<()> {
        match self.look.json {
            true => {
                let json = serde_json::to_string(json).map_err(io::Error::other)?;
                writeln!(self.out, "{json}")
            }
            false => writeln!(self.out, "{text}"),
        }
    }

    /// Prints something that only the text output has, such as a heading.
    pub fn say(&mut self, text: impl Display) -> io::Result<()> {
        if self.look.json {
            return Ok(());
        }
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// The output stream, for results of many lines.
    pub fn out(&mut self) -> &mut dyn Write {
        &mut *self.out
    }

    /// Prints a note for a human to standard error.
    pub fn note(&self, text: impl Display) {
        if !self.look.quiet && !self.look.json {
            eprintln!("{text}");
        }
    }

    /// A progress bar, drawn only on a terminal.
    pub fn bar(&self, len: u64, template: &str) -> ProgressBar {
        if self.look.quiet || self.look.json {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("rate", |state: &indicatif::ProgressState, w: &mut dyn std::fmt::Write| {
                // A failure to draw the bar must not stop the tool.
                let _ = write!(w, "{:.0}/s", state.per_sec());
            })
            .progress_chars("=> ");
        let bar = ProgressBar::new(len).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    /// The text in a style, if the terminal has colours.
    pub(crate) fn paint(&self, paint: Paint, text: impl Display) -> String {
        let code = match paint {
            Paint::Red => "31",
            Paint::Green => "32",
            Paint::Yellow => "33",
            Paint::Bold => "1",
        };
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Parses a moment. Unless the text is unambiguous, prints how it was interpreted.
    pub fn moment(&self, text: &str) -> Result<(Moment, Timestamp), MomentError> {
        let moment = Moment::read(text, self.now, &self.zone)?;
        let ts = moment.resolve(self.now);
        let exact = text.trim() == "now" || text.trim().starts_with("Timestamp(");
        if !exact && text.trim() != self.time(ts) {
            self.note(format_args!("{text} is {}, {}", self.time(ts), self.zone.name()));
        }
        Ok((moment, ts))
    }

    /// Formats a timestamp as a time in the zone of the output.
    pub fn time(&self, ts: Timestamp) -> String {
        self.zone.shown(ts)
    }

    /// Asks for confirmation before something is destroyed. `yes` means that the command line already confirmed it.
    pub fn confirm(&mut self, question: &str, yes: bool) -> Result<()> {
        if yes {
            return Ok(());
        }
        let Some(answers) = &mut self.answers else {
            bail!("{question}: nobody can be asked here, and nothing was done; add --yes to do it");
        };
        eprint!("{question}? Type yes to go on: ");
        io::stderr().flush()?;
        let mut said = String::new();
        answers.read_line(&mut said)?;
        match said.trim() {
            "yes" => Ok(()),
            _ => bail!("nothing was done: it was not confirmed"),
        }
    }

    /// A screen for tests, in UTC. Answers are read from `answers`.
    #[cfg(test)]
    pub(crate) fn scripted(look: Look, answers: Option<&'static str>) -> Self {
        Self {
            out: Box::new(Vec::new()),
            answers: answers.map(|text| Box::new(text.as_bytes()) as _),
            look,
            colours: false,
            zone: Zone::utc(),
            now: DateTime::from_millis(1_795_008_600_000),
        }
    }
}

/// `1 document`, `1,500 documents`.
pub fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Formats a number with commas between groups of three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_destroys_is_done_only_after_a_yes() {
        let ask = |answers, yes| {
            let mut screen = Screen::scripted(Look::default(), answers);
            screen.confirm("Drop shop.orders", yes).map_err(|error| error.to_string())
        };
        assert_eq!(ask(Some("yes\n"), false), Ok(()));
        assert_eq!(ask(None, true), Ok(()));
        for answer in ["", "\n", "no\n", "y\n"] {
            assert!(ask(Some(answer), false).unwrap_err().contains("not confirmed"), "{answer}");
        }
        assert!(ask(None, false).unwrap_err().contains("add --yes"));
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(count(1, "collection"), "1 collection");
        assert_eq!(count(0, "collection"), "0 collections");
        assert_eq!(count(1_234_567, "document"), "1,234,567 documents");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
    }

    #[test]
    fn a_moment_is_read_in_the_zone_that_is_shown() {
        let screen = Screen::scripted(Look { quiet: true, ..Look::default() }, None);
        let (_, ts) = screen.moment("13:03").unwrap();
        assert_eq!(screen.time(ts), "2026-11-18T13:03:00Z");
    }
}
