use std::fmt::Write;

use super::*;

#[test]
fn names_are_unique_and_in_order() {
    let names: Vec<_> = all().iter().map(|command| command.name).collect();
    assert!(names.is_sorted());
    let mut every: Vec<_> = all()
        .iter()
        .flat_map(|command| std::iter::once(&command.name).chain(command.aliases))
        .collect();
    let count = every.len();
    every.sort_unstable();
    every.dedup();
    assert_eq!(every.len(), count);
}

#[test]
fn aliases_find_their_command() {
    assert_eq!(find("ismaster").unwrap().1.name, "isMaster");
    assert!(find("nosuch").is_none());
    assert!(all().iter().all(|command| !command.help.is_empty()));
}

/// COMMANDS.md is generated from the table; `UPDATE=1` rewrites it.
#[test]
fn commands_md_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../COMMANDS.md");
    let want = markdown();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &want).unwrap();
    }
    let have = std::fs::read_to_string(path).unwrap_or_default();
    assert!(have == want, "COMMANDS.md is not current: run the test with UPDATE=1");
}

fn markdown() -> String {
    let mut out = String::from(
        "# Commands\n\nWritten by a test of the server crate from its table of commands.\n\n",
    );
    let sections = [
        (
            On::Always,
            "## Answered in every state",
            "In every member state, whatever the read preference.",
        ),
        (On::Serving, "## Answered as primary or secondary", "Whatever the read preference."),
        (
            On::Readable,
            "## Answered as primary, or as secondary if allowed",
            "A secondary's clients must allow it by read preference.",
        ),
        (On::Primary, "## Refused", "Only a primary runs them; refused with NotWritablePrimary."),
    ];
    for (on, title, text) in sections {
        let _ = writeln!(
            out,
            "{title}\n{text}\n\n| command | what it does | needs |\n| --- | --- | --- |"
        );
        for command in all().iter().filter(|command| command.on == on) {
            let mut name = format!("`{}`", command.name);
            for alias in command.aliases {
                let _ = write!(name, ", `{alias}`");
            }
            let place = if command.admin_only { ", on `admin`" } else { "" };
            let _ = writeln!(out, "| {name} | {} | {}{place} |", command.help, needs(command.auth));
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn needs(auth: Auth) -> String {
    match auth {
        Auth::None => "nothing".to_owned(),
        Auth::NewerUser => "a login from 8.0 on".to_owned(),
        Auth::User => "a login".to_owned(),
        Auth::Cluster(action) => format!("`{}` on the cluster", action.name()),
        Auth::Database(action) => format!("`{}` on the database", action.name()),
        Auth::Collection(action) => format!("`{}` on the collection", action.name()),
        Auth::Body(words, _) => words.to_owned(),
    }
}
