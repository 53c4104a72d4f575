//! The `tidegate` binary: flags to configuration to server, and helpers for operators.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use signal_hook::consts::{SIGINT, SIGTERM};
use tidegate::base::limits::PANIC_REPORT_MAX_S;
use tidegate::base::os::logging;
use tidegate::base::os::logging::{Destination, Syslog};
use tidegate::base::os::supervisor::Manager;
use tidegate::base::os::{process, process_title};
use tidegate::check::Verdict;
use tidegate::client::Address;
use tidegate::client_tls::TlsFlags;
use tidegate::config::{self, Arguments, Asked, Config, Supervised};
use tidegate::script::bundled::{BUNDLED, Bundled};
use tidegate::{check, client, command, export, import, ping, server};
use url::Url;

fn main() -> ExitCode {
    // SAFETY: there is one thread, and nothing of the arguments or the environment has been looked at.
    unsafe { process_title::prepare() };
    let asked = asked();
    if matches!(asked, Some(Asked::ShortHelp | Asked::Help | Asked::Version)) {
        process::end_with_the_reader();
    }
    let done = match asked {
        Some(Asked::Server(arguments)) => run(&arguments),
        Some(Asked::ShortHelp) => with_helpers(config::short_command()).print_help().map_err(Into::into),
        Some(Asked::Help) => command_line().print_help().map_err(Into::into),
        Some(Asked::Version) => {
            print!("{}", command_line().render_version());
            Ok(())
        }
        None => match unknown_topic() {
            Some(topic) => Err(no_such_helper("subcommand", &topic).into()),
            None => return help_out(&command_line().get_matches()),
        },
    };
    end(done)
}

/// What is asked of a server; `None` if one of the helpers is called instead.
fn asked() -> Option<Asked> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_helper =
        |first: &OsString| first == "help" || command_line().get_subcommands().any(|helper| first == helper.get_name());
    if args.first().is_some_and(is_helper) { None } else { Some(Arguments::parse(args)) }
}

/// What help is asked about, if that is no subcommand.
fn unknown_topic() -> Option<String> {
    let mut args = std::env::args_os().skip(1);
    let topic = args.next().filter(|first| first == "help").and(args.next())?.into_string().ok()?;
    let is_known = topic == "help" || topic.starts_with('-') || command_line().find_subcommand(&topic).is_some();
    (!is_known).then_some(topic)
}

/// Runs one of the helpers.
fn help_out(matches: &ArgMatches) -> ExitCode {
    end(match matches.subcommand() {
        Some(("ping", matches)) => ask(matches),
        Some(("import", matches)) => move_in(matches),
        Some(("export", matches)) => move_out(matches),
        Some(("check", matches)) => {
            process::end_with_the_reader();
            return look(matches);
        }
        Some(("scripts", matches)) => {
            process::end_with_the_reader();
            show_scripts(matches)
        }
        _ => Ok(()),
    })
}

/// Prints what has come of work that is done. Nobody may be reading any more.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn end(done: Result<(), Box<dyn Error>>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn command_line() -> Command {
    with_helpers(config::command())
}

/// The subcommands beside the command line of a server.
fn with_helpers(server: Command) -> Command {
    let name = Arg::new("NAME").help("Print this script instead of the list");
    server
        .subcommand(ping_command())
        .subcommand(
            Command::new("scripts")
                .about("List the scripts that every server has loaded, with their SHA1, and the commands that take their place")
                .arg(name),
        )
        .subcommand(import_command())
        .subcommand(export_command())
        .subcommand(check_command())
}

/// The flags that say how TLS is used, which are those of redis-cli. A short help leaves them out.
fn tls_flags() -> impl Iterator<Item = Arg> {
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let flags = [
        switch("tls", "Connect by TLS, as to addresses that begin with rediss://"),
        value(
            "sni",
            "NAME",
            "The name to ask for, which the server's certificate must have, instead of that of the address",
        ),
        value(
            "cacert",
            "FILE",
            "Certificates of the authorities to trust, in PEM; those of the system unless one of the two is given",
        ),
        value("cacertdir", "DIR", "A folder of such files"),
        switch("insecure", "Trust any certificate").conflicts_with_all(["cacert", "cacertdir"]),
        value("cert", "FILE", "A certificate to show, in PEM").requires("key"),
        value("key", "FILE", "Its key, in PEM").requires("cert"),
    ];
    flags.into_iter().map(|flag| flag.hide_short_help(true))
}

/// What they say, if TLS is used at one of these addresses.
fn tls(matches: &ArgMatches, urls: &[&str]) -> Result<TlsFlags, Box<dyn Error>> {
    let value = |name| matches.get_one::<String>(name);
    let flags = TlsFlags {
        always: matches.get_flag("tls"),
        cacert: value("cacert").map(PathBuf::from),
        cacertdir: value("cacertdir").map(PathBuf::from),
        cert: value("cert").map(PathBuf::from),
        key: value("key").map(PathBuf::from),
        sni: value("sni").cloned(),
        insecure: matches.get_flag("insecure"),
    };
    if flags.say_how() && !flags.always && !urls.iter().any(|url| url.starts_with("rediss://")) {
        return Err("it is said how to use TLS, but not where: add --tls, or write the address as rediss://".into());
    }
    Ok(flags)
}

/// Its short flags are those of redis-cli, so -h is no help.
fn ping_command() -> Command {
    let short = |name: &'static str, letter, value| Arg::new(name).long(name).short(letter).value_name(value);
    Command::new("ping")
        .about("Ask a server whether it answers and takes writes: exit code 0 if it does")
        .disable_help_flag(true)
        .arg(address("url").conflicts_with_all(["host", "port", "password"]))
        .arg(short("host", 'h', "HOST").default_value("127.0.0.1").help("Name or address of the server"))
        .arg(short("port", 'p', "PORT").default_value("6379").value_parser(value_parser!(u16)).help("Its port"))
        .arg(
            short("password", 'a', "PASSWORD")
                .help("Its password; TIDEGATE_AUTH in the environment hides it from others"),
        )
        .args(tls_flags())
        .arg(Arg::new("help").long("help").action(ArgAction::Help).help("Print help"))
}

/// A flag that takes the address of a server.
fn address(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("URL").default_value("redis://127.0.0.1:6379").help(client::ADDRESSES)
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn import_command() -> Command {
    let source = Arg::new("SOURCE").required(true).help(
        "A dump.rdb, an append-only file, a folder that holds one of these, or redis://[[USER]:PASSWORD@]HOST[:PORT] or \
         rediss://... of a running server, which is read as by a replica",
    );
    Command::new("import")
        .about("Move in: copy the data of Redis or Valkey into a running Tidegate")
        .arg(source)
        .arg(address("into"))
        .arg(switch("follow", "Go on with all that the running server does, until Ctrl-C: then the rest is applied"))
        .arg(switch(
            "replace",
            "Overwrite keys and libraries of the same name; otherwise the first one ends the import",
        ))
        .arg(switch("skip-unknown", "Leave out commands that Tidegate does not know, and list them at the end"))
        .args(tls_flags())
        .after_help(
            "To move without a stop:\n  \
             1. tidegate import --follow redis://old:6379 --into redis://new:6379   and wait for `0 bytes behind`\n  \
             2. stop the writers\n  \
             3. Ctrl-C here: it applies all that the old server has done, and says so\n  \
             4. point the clients at the new server\n\
             An import that was interrupted goes on where it was when the same command is given again.",
        )
}

fn export_command() -> Command {
    Command::new("export")
        .about("Move out: write the data of a running Tidegate to a file that redis-server 7.0 or later loads")
        .arg(Arg::new("FILE").required(true).help("The file to write, such as dump.rdb"))
        .arg(address("from"))
        .arg(switch("replace", "Overwrite FILE"))
        .args(tls_flags())
        .after_help(
            "Each key is written as it is at one instant, but not all at the same: for one point in time, stop the writers first. \
             The server goes on meanwhile.",
        )
}

fn check_command() -> Command {
    Command::new("check")
        .about("Look at the data of a server that is not running: are all snapshots and the log as they were written?")
        .arg(Arg::new("DIR").required(true).help("The folder of the data, such as tidegate-data"))
        .arg(switch(
            "repair",
            "Have the log end where its damage begins. What that changes is copied to DIR/backup-TIME first",
        ))
        .after_help(
            "Exit code 0: all is good; 1: a torn tail, which the next start cuts off, or damage; 2: it can't be read, or a \
             server is using it. Without --repair nothing is written.",
        )
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(word) = arguments.file.as_deref().and_then(mistyped_helper) {
        return Err(no_such_helper("subcommand and no configuration file", word).into());
    }
    let config = Config::from_arguments(arguments)?;
    match manager(&config) {
        Some(manager) => manager.follow(),
        None if config.daemonize => {
            process::go_to_background().map_err(|error| format!("cannot go to the background: {error}"))?
        }
        None => {}
    }
    logging::start(config.loglevel.filter(), &log_destination(&config))
        .map_err(|error| format!("cannot log to {}: {error}", config.logfile.display()))?;
    abort_on_panic();
    Ok(server::run(config)?)
}

/// A word in the place of the configuration file that names no file, and does not look like one.
fn mistyped_helper(file: &Path) -> Option<&str> {
    let word = file.to_str().filter(|word| !word.contains(['/', '.']))?;
    (!file.exists()).then_some(word)
}

/// The error for a `what` that does not exist, with the nearest subcommand.
fn no_such_helper(what: &str, word: &str) -> String {
    let hint = config::nearest(word, command_line().get_subcommands().map(Command::get_name))
        .map(|name| format!(" Did you mean `tidegate {name}`?"));
    format!("there is no {what} {word}.{} `tidegate -h` lists the subcommands.", hint.unwrap_or_default())
}

/// The service manager that is to hear of this server.
fn manager(config: &Config) -> Option<Manager> {
    match config.supervised {
        Supervised::No => None,
        Supervised::Systemd => Manager::systemd(),
        Supervised::Upstart => Manager::upstart(),
        Supervised::Auto => Manager::systemd().or_else(Manager::upstart),
    }
}

fn log_destination(config: &Config) -> Destination {
    let syslog = Syslog {
        name: String::from_utf8_lossy(&config.syslog_ident).into_owned(),
        facility: config.syslog_facility.number(),
    };
    Destination {
        file: Some(config.dir.join(&config.logfile)).filter(|_| !config.logfile.as_os_str().is_empty()),
        syslog: Some(syslog).filter(|_| config.syslog_enabled),
    }
}

/// A panic is a mistake of the program, after which its state can't be trusted: it ends the whole server, loudly, instead of
/// leaving one with a connection or the script state missing. The hook runs before anything is unwound. It is not `panic =
/// "abort"` because errors of Lua unwind through Rust frames, which that setting forbids.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Standard error may be a pipe that nobody reads.
        process::end_within(PANIC_REPORT_MAX_S);
        logging::flush();
        report(panic);
        std::process::abort();
    }));
}

fn ask(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let url = &url_to_ping(matches)?;
    ping::ping(Address { url, tls: &tls(matches, &[url])? })?;
    say("PONG");
    Ok(())
}

/// The address that flags name, in parts or as a whole.
fn url_to_ping(matches: &ArgMatches) -> Result<String, Box<dyn Error>> {
    if matches.value_source("url") == Some(ValueSource::CommandLine) {
        return Ok(text(matches, "url").to_owned());
    }
    let host = text(matches, "host");
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let port = matches.get_one::<u16>("port").copied().unwrap_or_default();
    let mut url = Url::parse(&format!("redis://{host}:{port}")).map_err(|error| format!("{host}:{port}: {error}"))?;
    // What has a host takes a password; the characters that a URL can't hold are written as it does.
    let _ = url.set_password(matches.get_one::<String>("password").map(String::as_str));
    Ok(url.into())
}

fn move_in(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let options =
        import::Options { replace: matches.get_flag("replace"), skip_unknown: matches.get_flag("skip-unknown") };
    let stop = if matches.get_flag("follow") { Some(stop_signal()?) } else { None };
    let (source, into) = (text(matches, "SOURCE"), text(matches, "into"));
    let tls = &tls(matches, &[source, into])?;
    let into = Address { url: into, tls };
    let report = import::import(source, into, options, stop.as_deref(), &mut |text| eprintln!("{text}"))?;
    say(&format!("imported: {report}"));
    Ok(())
}

/// Is set by the first Ctrl-C or SIGTERM; the second ends the process.
fn stop_signal() -> Result<Arc<AtomicBool>, Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn move_out(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let (file, from) = (Path::new(text(matches, "FILE")), text(matches, "from"));
    let from = Address { url: from, tls: &tls(matches, &[from])? };
    let report = export::export(from, file, matches.get_flag("replace"), &mut |text| eprintln!("{text}"))?;
    say(&format!("exported to {}: {report}", file.display()));
    Ok(())
}

/// Looks at a directory, after a repair if one is asked for.
fn look(matches: &ArgMatches) -> ExitCode {
    let path = Path::new(text(matches, "DIR"));
    let say = &mut |line: &str| println!("{line}");
    let repaired = if matches.get_flag("repair") { check::repair(path, say) } else { Ok(()) };
    match repaired.and_then(|()| check::check(path, say)) {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Faulty) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// An argument that is required or has a default.
fn text<'m>(matches: &'m ArgMatches, name: &str) -> &'m str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

fn show_scripts(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    match matches.get_one::<String>("NAME") {
        Some(name) => {
            let script = Bundled::named(name).ok_or_else(|| {
                let hint = config::nearest(name, BUNDLED.iter().map(|script| script.name))
                    .map(|name| format!(". Did you mean {name}?"));
                format!(
                    "no bundled script is called {name}{} `tidegate scripts` lists them",
                    hint.as_deref().unwrap_or(";")
                )
            })?;
            print!("{}", script.body);
        }
        None => {
            println!(
                "Commands that take the place of scripts, for programs that need not run on Redis (docs/coordination has all):\n"
            );
            let mut shown = BTreeSet::new();
            for name in BUNDLED.iter().flat_map(|script| script.commands).filter(|name| shown.insert(**name)) {
                println!("{name:18}  {}", summary(name));
            }
            println!("\nScripts, which run on Redis, too, each with its SHA1 and the commands to look at instead:\n");
            for script in BUNDLED {
                let sha1 = script.sha1();
                let commands = script.commands.join(" ");
                println!("{:18}  {}  {commands:26}  {}", script.name, sha1.escape_ascii(), script.summary());
            }
        }
    }
    Ok(())
}

/// What a command does, as COMMAND DOCS tells it.
fn summary(command: &str) -> &'static str {
    command::table().find(command.as_bytes()).map_or("", |entry| entry.command.summary)
}
