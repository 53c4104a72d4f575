//! The `tidegate` binary: flags to configuration to server, and two small helpers for operators.

use std::error::Error;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use tidegate::base::logging;
use tidegate::config::{self, Config};
use tidegate::script::bundled::{BUNDLED, Bundled};
use tidegate::{ping, server};

fn main() -> ExitCode {
    let matches = command_line().get_matches();
    let done = match matches.subcommand() {
        Some(("ping", matches)) => ask(matches),
        Some(("scripts", matches)) => show_scripts(matches),
        _ => run(&matches),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn command_line() -> Command {
    let url = Arg::new("url")
        .long("url")
        .value_name("URL")
        .default_value("redis://127.0.0.1:6379")
        .help("redis://[[USER]:PASSWORD@]HOST[:PORT] or unix:///PATH");
    let name = Arg::new("NAME").help("Print this script instead of the list");
    config::command()
        .subcommand(Command::new("ping").about("Ask a server whether it answers: exit code 0 if it does").arg(url))
        .subcommand(
            Command::new("scripts").about("List the scripts that every server has loaded, with their SHA1").arg(name),
        )
}

fn run(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let config = Config::from_matches(matches)?;
    let logfile = Some(config.dir.join(&config.logfile)).filter(|_| !config.logfile.as_os_str().is_empty());
    logging::start(config.loglevel.filter(), logfile.as_deref())
        .map_err(|error| format!("cannot log to {}: {error}", config.logfile.display()))?;
    abort_on_panic();
    Ok(server::run(config)?)
}

/// A panic is a mistake of the program, after which its state can't be trusted: it ends the whole server, loudly, instead of
/// leaving one with a connection or the script state missing. The hook runs before anything is unwound. It is not `panic =
/// "abort"` because errors of Lua unwind through Rust frames, which that setting forbids.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn ask(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let url = matches.get_one::<String>("url").expect("it has a default");
    ping::ping(url)?;
    println!("PONG");
    Ok(())
}

fn show_scripts(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    match matches.get_one::<String>("NAME") {
        Some(name) => {
            let script = Bundled::named(name)
                .ok_or_else(|| format!("no bundled script is called {name}; `tidegate scripts` lists them"))?;
            print!("{}", script.body);
        }
        None => {
            for script in BUNDLED {
                let sha1 = script.sha1();
                println!("{:18}  {}  {}", script.name, sha1.escape_ascii(), script.summary());
            }
        }
    }
    Ok(())
}
