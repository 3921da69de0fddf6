//! Parses the command line with clap, with mongod's error texts.

use clap::{Arg, ArgAction, ArgMatches, Command, error::ErrorKind, value_parser};
use clap_complete::Shell;

use super::{
    ConfigError,
    options::{Given, Kind, OPTIONS, Opt, Support},
};

/// The result of parsing the flags.
pub(super) enum Flags {
    /// `--help` or `--version`.
    Print(String),
    Given(Given),
}

pub(super) fn parse(argv: &[String]) -> Result<Flags, ConfigError> {
    let matches = match command().try_get_matches_from(argv.iter().map(|arg| expand_v(arg))) {
        Ok(matches) => matches,
        Err(err) => return translate(&err, argv),
    };
    if let Some(shell) = matches.get_one::<Shell>(COMPLETIONS) {
        let mut text = Vec::new();
        clap_complete::generate(*shell, &mut command(), "understudy", &mut text);
        return Ok(Flags::Print(String::from_utf8_lossy(&text).into_owned()));
    }
    if matches.get_flag(MAN_PAGE) {
        let mut text = Vec::new();
        let page = clap_mangen::Man::new(command()).render(&mut text);
        page.map_err(|error| ConfigError::CommandLine(error.to_string()))?;
        return Ok(Flags::Print(String::from_utf8_lossy(&text).into_owned()));
    }
    let mut given = Given::default();
    for opt in OPTIONS.iter().filter(|opt| !opt.flag.is_empty()) {
        take(&matches, opt, &mut given);
    }
    Ok(Flags::Given(given))
}

fn take(matches: &ArgMatches, opt: &'static Opt, given: &mut Given) {
    match opt.kind {
        Kind::Switch => {
            if matches.get_flag(opt.flag) {
                given.put(opt, opt.flag, "true");
            }
        }
        Kind::Verbosity => {
            let count = matches.get_count(opt.flag);
            if count > 0 {
                given.put(opt, opt.flag, &count.to_string());
            }
        }
        Kind::Pairs => {
            for pair in matches.get_many::<String>(opt.flag).into_iter().flatten() {
                match pair.split_once('=') {
                    Some((name, value)) => given.put_parameter(name, value),
                    None => given.wrong.push(ConfigError::CommandLine(format!(
                        "Illegal option assignment: \"{pair}\"; use --setParameter name=value"
                    ))),
                }
            }
        }
        Kind::Text | Kind::Int | Kind::Float => {
            if let Some(text) = matches.get_one::<String>(opt.flag) {
                given.put(opt, opt.flag, text);
            }
        }
    }
}

/// Converts `--vvv`, an old spelling, to `-vvv`.
fn expand_v(arg: &str) -> String {
    match arg.strip_prefix("--") {
        Some(rest) if !rest.is_empty() && rest.bytes().all(|byte| byte == b'v') => {
            format!("-{rest}")
        }
        _ => arg.to_owned(),
    }
}

fn command() -> Command {
    let mut command = Command::new("understudy")
        .about("A hidden member of a MongoDB replica set, with the past readable")
        .version(env!("UNDERSTUDY_VERSION"))
        .disable_help_subcommand(true)
        .args_override_self(true)
        .override_usage("understudy [options]");
    for opt in OPTIONS.iter().filter(|opt| !opt.flag.is_empty()) {
        command = command.arg(arg(opt));
    }
    let shell = Arg::new(COMPLETIONS).long(COMPLETIONS).value_parser(value_parser!(Shell));
    let man = Arg::new(MAN_PAGE).long(MAN_PAGE).action(ArgAction::SetTrue);
    command
        .arg(shell.value_name("shell").help("Print the completions for a shell, and leave"))
        .arg(man.help("Print the manual page, and leave"))
}

/// Options of our own that print something instead of starting.
const COMPLETIONS: &str = "completions";
const MAN_PAGE: &str = "manPage";

fn arg(opt: &'static Opt) -> Arg {
    let arg = Arg::new(opt.flag).long(opt.flag).help(opt.help);
    let arg = arg.hide(opt.support != Support::Yes);
    let arg = match opt.flag {
        "config" => arg.short('f'),
        "verbose" => arg.short('v'),
        _ => arg,
    };
    match opt.kind {
        Kind::Switch => arg.action(ArgAction::SetTrue),
        Kind::Verbosity => arg.action(ArgAction::Count),
        Kind::Pairs => arg.action(ArgAction::Append).value_name("name=value"),
        Kind::Text | Kind::Int | Kind::Float => {
            arg.action(ArgAction::Set).allow_hyphen_values(true).value_name("arg")
        }
    }
}

fn translate(err: &clap::Error, argv: &[String]) -> Result<Flags, ConfigError> {
    let named = |kind| {
        err.context().find_map(|(context, value)| (context == kind).then(|| value.to_string()))
    };
    let arg = named(clap::error::ContextKind::InvalidArg).unwrap_or_default();
    let flag = arg.split_whitespace().next().unwrap_or_default().to_owned();
    match err.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Flags::Print(err.to_string())),
        ErrorKind::UnknownArgument if flag.starts_with('-') => {
            Err(ConfigError::CommandLine(format!("unrecognised option '{flag}'")))
        }
        ErrorKind::UnknownArgument => {
            Err(ConfigError::CommandLine(format!("too many positional options: '{flag}'")))
        }
        ErrorKind::InvalidValue | ErrorKind::TooFewValues => Err(ConfigError::CommandLine(
            format!("the required argument for option '{flag}' is missing"),
        )),
        _ => {
            let text = err.to_string();
            let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Err(ConfigError::CommandLine(format!("{text} (in {} arguments)", argv.len())))
        }
    }
}
