//! The `tidegate` binary: turns flags into a configuration and that into a server, and has helpers for operators.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use signal_hook::consts::{SIGINT, SIGTERM};
use tidegate::backup::{Plan, Restored, Until};
use tidegate::base::calendar::utc;
use tidegate::base::limits::{BACKUP_RATE_MIN, PANIC_REPORT_MAX_S};
use tidegate::base::lsn::Lsn;
use tidegate::base::os::logging;
use tidegate::base::os::logging::{Destination, Syslog};
use tidegate::base::os::supervisor::Manager;
use tidegate::base::os::{process, process_title};
use tidegate::check::Verdict;
use tidegate::client::Address;
use tidegate::client_tls::TlsFlags;
use tidegate::config::{self, Arguments, Asked, Config, Supervised};
use tidegate::membership::Task;
use tidegate::script::bundled::{BUNDLED, Bundled};
use tidegate::{backup, check, client, command, export, import, membership, ping, server};
use url::Url;

fn main() -> ExitCode {
    // SAFETY: there is one thread, and neither arguments nor environment have been read yet.
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

/// Returns the request to the server itself; `None` if one of the helpers is called instead.
fn asked() -> Option<Asked> {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Test libraries start any image of Redis by the name of its program, and our image has named ours already.
    if args.first().is_some_and(|first| first == "redis-server") {
        args.remove(0);
    }
    let is_helper =
        |first: &OsString| first == "help" || command_line().get_subcommands().any(|helper| first == helper.get_name());
    if args.first().is_some_and(is_helper) { None } else { Some(Arguments::parse(args)) }
}

/// Returns the topic of `tidegate help TOPIC` if it is not a subcommand.
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
        Some(("backup", matches)) => back_up(matches),
        Some(("restore", matches)) => restore(matches),
        Some(("check", matches)) => {
            process::end_with_the_reader();
            return check_directory(matches);
        }
        Some(("node", matches)) => manage_nodes(matches),
        Some(("config", matches)) => {
            process::end_with_the_reader();
            show_configuration(matches)
        }
        Some(("scripts", matches)) => {
            process::end_with_the_reader();
            show_scripts(matches)
        }
        Some(("generate", matches)) => generate(matches),
        _ => Ok(()),
    })
}

/// Prints the result of finished work. A closed output is not an error.
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
    with_helpers(config::command()).subcommand(generate_command())
}

/// Adds the helpers as subcommands to the command line of a server.
fn with_helpers(server: Command) -> Command {
    let name = Arg::new("NAME").help("Print this script instead of the list");
    server
        .subcommand(ping_command())
        .subcommand(
            Command::new("scripts")
                .about("List the bundled scripts with their SHA1, and the commands that can replace them")
                .arg(name),
        )
        .subcommand(import_command())
        .subcommand(export_command())
        .subcommand(backup_command())
        .subcommand(restore_command())
        .subcommand(check_command())
        .subcommand(node_command())
        .subcommand(config_command())
}

/// The flags for TLS, named as in redis-cli. A short help leaves them out.
fn tls_flags() -> impl Iterator<Item = Arg> {
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let flags = [
        switch("tls", "Use TLS, as for addresses that begin with rediss://"),
        value("sni", "NAME", "The name that the server's certificate must have, instead of the name in the address"),
        value(
            "cacert",
            "FILE",
            "Certificates of trusted authorities, in PEM; without this flag and --cacertdir, those of the system",
        ),
        value("cacertdir", "DIR", "A folder with certificates of trusted authorities"),
        switch("insecure", "Trust any certificate").conflicts_with_all(["cacert", "cacertdir"]),
        value("cert", "FILE", "The certificate of this client, in PEM").requires("key"),
        value("key", "FILE", "The key of that certificate, in PEM").requires("cert"),
    ];
    flags.into_iter().map(|flag| flag.hide_short_help(true))
}

/// Returns the flags for TLS. They must not be given without an address that uses TLS.
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
        return Err(
            "flags for TLS are given, but no address uses it: add --tls, or write the address as rediss://".into()
        );
    }
    Ok(flags)
}

/// The short flags are those of redis-cli, so -h is the host and not the help.
fn ping_command() -> Command {
    let short = |name: &'static str, letter, value| Arg::new(name).long(name).short(letter).value_name(value);
    Command::new("ping")
        .about("Check that a server answers and accepts writes: exit code 0 if it does")
        .disable_help_flag(true)
        .arg(address("url").conflicts_with_all(["host", "port", "password"]))
        .arg(short("host", 'h', "HOST").default_value("127.0.0.1").help("Name or address of the server"))
        .arg(
            short("port", 'p', "PORT")
                .default_value("6379")
                .value_parser(value_parser!(u16))
                .help("Port of the server"),
        )
        .arg(
            short("password", 'a', "PASSWORD")
                .help("Password; set TIDEGATE_AUTH in the environment instead to hide it from other users"),
        )
        .arg(time(
            "wait",
            "Wait for so long until a server answers that is being started or loads its data, such as 30s",
        ))
        .args(tls_flags())
        .arg(Arg::new("help").long("help").action(ArgAction::Help).help("Print help"))
}

/// A flag for a length of time.
fn time(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("TIME").value_parser(humantime::parse_duration).help(help)
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
        "A dump.rdb, an append-only file, a folder with one of these, or the address of a running server, from \
         which the import reads like a replica: redis://[[USER]:PASSWORD@]HOST[:PORT] or rediss://...",
    );
    Command::new("import")
        .about("Move in: copy the data of Redis, Valkey or another Tidegate into a running Tidegate")
        .arg(source)
        .arg(address("into"))
        .arg(switch(
            "follow",
            "Keep applying the changes of the running server until Ctrl-C, then apply the rest and end",
        ))
        .arg(
            Arg::new("cut-over")
                .long("cut-over")
                .value_name("HOST:PORT")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("")
                .requires("follow")
                .help(
                    "As soon as the new server is up to date, make the old one, a Tidegate, refuse all clients, apply \
                     the rest, and let clients in. HOST:PORT is where they reach the new server, for those who still \
                     ask the old one",
                ),
        )
        .arg(switch("replace", "Overwrite existing keys and libraries; otherwise the first one ends the import"))
        .arg(switch("skip-unknown", "Skip commands that Tidegate does not know, and list them at the end"))
        .args(tls_flags())
        .after_help(
            "To move from one Tidegate to another without downtime:\n  \
             1. tidegate import --follow redis://old:6379 --into redis://new:6379   and wait for `0 behind`\n  \
             2. the same with --cut-over\n\
             To move from Redis or Valkey without downtime:\n  \
             1. tidegate import --follow redis://old:6379 --into redis://new:6379   and wait for `0 bytes behind`\n  \
             2. stop the writers\n  \
             3. Ctrl-C here: applies all changes of the old server, and says so\n  \
             4. point the clients at the new server\n\
             To resume an interrupted import, run the same command again.",
        )
}

fn export_command() -> Command {
    Command::new("export")
        .about("Move out: write the data of a running Tidegate to a file that redis-server 7.0 or later can load")
        .arg(Arg::new("FILE").required(true).help("The file to write, such as dump.rdb"))
        .arg(address("from"))
        .arg(switch("replace", "Overwrite FILE"))
        .args(tls_flags())
        .after_help(
            "Each key is written as of one instant, but different keys as of different instants: to export one \
             point in time, stop the writers first. The server keeps working.",
        )
}

fn backup_command() -> Command {
    Command::new("backup")
        .about("Copy everything that a running server has into a folder, and follow it if asked to")
        .arg(Arg::new("DIR").required(true).help(
            "The folder of the copies; each is a folder in it, named by its time. `-`: one copy as one file, written \
             to standard output",
        ))
        .arg(address("from"))
        .arg(switch("follow", "Go on with all later changes, so that any moment can be restored"))
        .arg(
            time("every", "While following, begin another copy after this time")
                .default_value("1day")
                .requires("follow"),
        )
        .arg(time("keep", "Remove copies that are not needed for any moment since so long ago, such as 7days"))
        .arg(
            Arg::new("max-rate")
                .long("max-rate")
                .value_name("BYTES")
                .value_parser(rate)
                .help("Read at most so many bytes a second from the server, such as 20mb: others notice less of it"),
        )
        .args(tls_flags())
        .after_help(
            "A copy is as of one moment: it has every key, lock, gate, stock, queue, script and library. The server \
             keeps working, and must have `appendonly yes`; its user needs the right to call FEED. Each copy is a \
             folder as a server has it, so `tidegate check DIR/COPY/tidegate-data` verifies it.\n\n\
             With `-` the copy goes through a pipe: `tidegate backup - | zstd >FILE`. What its end says is said on \
             standard error, and `tidegate restore` refuses a copy without its end.\n\n\
             Exit code 0: the copy is complete; 1: there is none. With --follow it ends on a signal, and goes on with \
             the newest copy when it is called again.",
        )
}

fn restore_command() -> Command {
    let moment = Arg::new("until").long("until").value_name("LSN|TIME").value_parser(moment);
    Command::new("restore")
        .about("Make the folder of a server from a copy, as of its end or of any earlier moment")
        .arg(
            Arg::new("DIR").required(true).help("The folder of the copies, one copy, or its file; `-`: standard input"),
        )
        .arg(
            Arg::new("into")
                .long("into")
                .value_name("NEW_DIR")
                .required(true)
                .help("The folder for a server's `--dir`"),
        )
        .arg(moment.help("The last change to bring back, or a time such as 2026-11-30T08:00:00Z"))
        .after_help("Exit code 0: `tidegate --dir NEW_DIR` starts with the data; 1: nothing was restored.")
}

/// Reads bytes a second.
fn rate(text: &str) -> Result<NonZeroU64, String> {
    let bytes = config::parse_memory(text.as_bytes()).filter(|bytes| *bytes >= BACKUP_RATE_MIN);
    bytes.and_then(NonZeroU64::new).ok_or_else(|| format!("at least {}kb, such as 20mb", BACKUP_RATE_MIN >> 10))
}

/// Reads a moment to restore.
fn moment(text: &str) -> Result<Until, String> {
    if let Ok(lsn) = text.parse() {
        return Ok(Until::Lsn(Lsn::new(lsn)));
    }
    let time = humantime::parse_rfc3339_weak(text).ok();
    let since_1970 = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let ms = since_1970.and_then(|time| i64::try_from(time.as_millis()).ok());
    ms.map(Until::Time)
        .ok_or_else(|| "give the number of a change, or a time in UTC as 2026-11-30T08:00:00Z".to_owned())
}

fn check_command() -> Command {
    Command::new("check")
        .about("Verify the data of a stopped server: all snapshots and the whole journal")
        .arg(
            Arg::new("DIR").required(true).help("The folder of the data, such as tidegate-data, or the file of a copy"),
        )
        .arg(switch(
            "repair",
            "Truncate a damaged journal where the damage begins. Files that the repair changes are first copied to \
             DIR/backup-TIME",
        ))
        .after_help(
            "Exit code 0: everything is good; 1: a torn tail, which the next start cuts off, or damage; 2: the folder \
             can't be read, or a server is using it. Without --repair nothing is written.",
        )
}

fn node_command() -> Command {
    let task = |name: &'static str, about: &'static str| {
        let number = Arg::new("ID").required(true).value_parser(value_parser!(u64).range(1..));
        Command::new(name).about(about).arg(number.help("The number of the node, as in its `node-id`"))
    };
    let only_follows = switch("learner", "Let it follow only: it is up to date, and does not vote");
    Command::new("node")
        .about("Show and change the nodes of a group")
        .subcommand_required(true)
        .arg(address("url").global(true))
        .args(tls_flags().map(|flag| flag.global(true)))
        .subcommand(Command::new("list").about("Show the nodes, and those that ask to join"))
        .subcommand(
            task("add", "Add a node that asks to join, and let it vote once it has caught up").arg(only_follows),
        )
        .subcommand(task("promote", "Let a node vote that has followed so far"))
        .subcommand(task("remove", "Remove a node; if it leads, another one takes over first"))
        .subcommand(task("transfer", "Hand leadership over to a node"))
        .after_help(
            "Any node of the group will do for --url. A task that was interrupted goes on when it is called again.\n\
             To replace a node that is lost: start another one with a new number and the nodes of the group in its \
             `nodes`, add it, and remove the old one.",
        )
}

/// Hidden, because only those who build packages call it.
fn generate_command() -> Command {
    let folder = Arg::new("DIR").required(true).value_parser(value_parser!(PathBuf)).help("A folder that exists");
    Command::new("generate")
        .about("Write the files that a package installs beside the program")
        .hide(true)
        .subcommand_required(true)
        .subcommand(Command::new("man").about("Write the manual pages").arg(folder.clone()))
        .subcommand(Command::new("completions").about("Write completions for bash, fish and zsh").arg(folder))
}

/// Writes files about the command line that users see, without this helper.
fn generate(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let Some((kind, matches)) = matches.subcommand() else { return Ok(()) };
    let folder = matches.get_one::<PathBuf>("DIR").cloned().unwrap_or_default();
    // Without this, a manual begins with a page of flags.
    let usage = "tidegate [OPTIONS] [FILE]\ntidegate <COMMAND>";
    let mut shown = with_helpers(config::command()).override_usage(usage);
    if kind == "man" {
        return Ok(clap_mangen::generate_to(shown, folder)?);
    }
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut shown, "tidegate", &folder)?;
    }
    Ok(())
}

fn config_command() -> Command {
    let arguments = || {
        Arg::new("ARGUMENTS")
            .num_args(0..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .value_parser(value_parser!(OsString))
            .help("[FILE|-] [--name value...], as a server would be started")
    };
    let task = |name: &'static str, about: &'static str| Command::new(name).about(about).arg(arguments());
    Command::new("config")
        .about("Look at a configuration without starting a server")
        .subcommand_required(true)
        .subcommand(task("check", "Check it as a start would: values, users, certificates, and nodes"))
        .subcommand(task("print", "Print all values as a file, apart from secrets and users"))
}

fn show_configuration(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let Some((task, matches)) = matches.subcommand() else { return Ok(()) };
    let given = matches.get_many::<OsString>("ARGUMENTS").into_iter().flatten().cloned();
    let Asked::Server(arguments) = Arguments::parse(given) else {
        return Err(format!("`tidegate config {task} --help` explains what to give").into());
    };
    let config = Config::from_arguments(&arguments)?;
    if task == "print" {
        std::io::stdout().write_all(&config::effective(&config))?;
        return Ok(());
    }
    server::examine(&config)?;
    config.warnings().iter().chain(&config.notices()).for_each(|line| say(line));
    say("a server can be started with this configuration");
    Ok(())
}

fn manage_nodes(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
    let node = || matches.get_one::<u64>("ID").copied().unwrap_or_default();
    let task = match name {
        "add" => Task::Add { node: node(), only_follows: matches.get_flag("learner") },
        "promote" => Task::Promote(node()),
        "remove" => Task::Remove(node()),
        "transfer" => Task::Transfer(node()),
        _ => Task::List,
    };
    let url = text(matches, "url");
    let server = Address { url, tls: &tls(matches, &[url])? };
    Ok(membership::run(server, task, &mut say)?)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(word) = arguments.file.as_deref().and_then(mistyped_helper) {
        return Err(no_such_helper("subcommand and no configuration file", word).into());
    }
    let config = Config::from_arguments(arguments)?;
    match manager(&config) {
        Some(manager) => manager.follow(),
        None if config.daemonize => {
            process::go_to_background().map_err(|error| format!("cannot run in the background: {error}"))?
        }
        None => {}
    }
    logging::start(config.loglevel.filter(), &log_destination(&config))
        .map_err(|error| format!("cannot log to {}: {error}", config.logfile.display()))?;
    abort_on_panic();
    let is_for_programs = config.log_format.form() == logging::Format::Json;
    server::run(config).map_err(|error| {
        // Programs that collect the log do not read the text on standard error.
        if is_for_programs {
            tracing::error!("{error}");
            logging::flush();
        }
        error.into()
    })
}

/// Returns the word in the place of the configuration file if there is no such file and it does not look like a path.
fn mistyped_helper(file: &Path) -> Option<&str> {
    let word = file.to_str().filter(|word| !word.contains(['/', '.']))?;
    (!file.exists()).then_some(word)
}

/// Returns the error for a missing `what`, with the nearest subcommand.
fn no_such_helper(what: &str, word: &str) -> String {
    let hint = config::nearest(word, command_line().get_subcommands().map(Command::get_name))
        .map(|name| format!(" Did you mean `tidegate {name}`?"));
    format!("there is no {what} {word}.{} `tidegate -h` lists the subcommands.", hint.unwrap_or_default())
}

/// Returns the service manager to notify of this server's state.
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
        format: config.log_format.form(),
    }
}

/// Makes a panic end the whole server, loudly. A panic is a mistake of the program, after which its state can't be
/// trusted, and a server that goes on without a connection or the script state would be worse. The hook runs before
/// anything is unwound. The setting `panic = "abort"` would forbid the errors of Lua, which unwind through Rust frames.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Standard error may be a pipe without a reader, on which the report would hang.
        process::end_within(PANIC_REPORT_MAX_S);
        logging::flush();
        report(panic);
        std::process::abort();
    }));
}

fn ask(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let url = &url_to_ping(matches)?;
    let patience = matches.get_one::<Duration>("wait").copied().unwrap_or_default();
    ping::wait(Address { url, tls: &tls(matches, &[url])? }, patience)?;
    say("PONG");
    Ok(())
}

/// Returns the address that the flags give, as a URL or in parts.
fn url_to_ping(matches: &ArgMatches) -> Result<String, Box<dyn Error>> {
    if matches.value_source("url") == Some(ValueSource::CommandLine) {
        return Ok(text(matches, "url").to_owned());
    }
    let host = text(matches, "host");
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let port = matches.get_one::<u16>("port").copied().unwrap_or_default();
    let mut url = Url::parse(&format!("redis://{host}:{port}")).map_err(|error| format!("{host}:{port}: {error}"))?;
    // A URL with a host takes a password, and escapes the characters that a URL can't hold.
    let _ = url.set_password(matches.get_one::<String>("password").map(String::as_str));
    Ok(url.into())
}

fn move_in(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let options = import::Options {
        replace: matches.get_flag("replace"),
        skip_unknown: matches.get_flag("skip-unknown"),
        cut_over: matches.get_one::<String>("cut-over").map(String::as_str),
    };
    let stop = if matches.get_flag("follow") { Some(stop_signal()?) } else { None };
    let (source, into) = (text(matches, "SOURCE"), text(matches, "into"));
    let tls = &tls(matches, &[source, into])?;
    let into = Address { url: into, tls };
    let outcome = import::import(source, into, options, stop.as_deref(), &mut |text| eprintln!("{text}"))?;
    say(&outcome.to_string());
    Ok(())
}

/// Returns a flag that the first Ctrl-C or SIGTERM sets; the second ends the process.
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

fn back_up(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let from = text(matches, "from");
    let from = Address { url: from, tls: &tls(matches, &[from])? };
    let max_rate = matches.get_one::<NonZeroU64>("max-rate").copied();
    if text(matches, "DIR") == "-" {
        return back_up_to_output(matches, from, max_rate);
    }
    let time = |name| matches.get_one::<Duration>(name).copied();
    let (follow, every) = (matches.get_flag("follow"), time("every").unwrap_or(Duration::MAX));
    if every.is_zero() {
        return Err("--every 0 would begin one copy after the other".into());
    }
    let plan = Plan { follow, every, keep: time("keep"), max_rate };
    // A single copy is no copy before its end.
    let stop = if follow { stop_signal()? } else { Arc::default() };
    Ok(backup::backup(from, Path::new(text(matches, "DIR")), plan, &stop, &mut say)?)
}

/// Writes one copy to standard output. Reports go to standard error.
fn back_up_to_output(
    matches: &ArgMatches,
    from: Address<'_>,
    max_rate: Option<NonZeroU64>,
) -> Result<(), Box<dyn Error>> {
    let output = std::io::stdout();
    if matches.get_flag("follow") || matches.contains_id("keep") {
        return Err("--follow and --keep need a folder for the copies, not `-`".into());
    }
    if output.is_terminal() {
        return Err("a copy is not for reading: write it to a file or into a pipe, or name a folder".into());
    }
    let output = File::from(output.as_fd().try_clone_to_owned()?);
    Ok(backup::backup_to_file(from, output, max_rate, &mut |text| eprintln!("{text}"))?)
}

fn restore(matches: &ArgMatches) -> Result<(), Box<dyn Error>> {
    let (from, into) = (Path::new(text(matches, "DIR")), Path::new(text(matches, "into")));
    let until = matches.get_one::<Until>("until").copied().unwrap_or(Until::End);
    let Restored { last, time_ms } = backup::restore(from, into, until)?;
    say(&format!("restored up to Lsn {last}, of {}: tidegate --dir {}", utc(time_ms), into.display()));
    Ok(())
}

/// Checks a directory, after a repair if one is asked for.
fn check_directory(matches: &ArgMatches) -> ExitCode {
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

/// Returns the value of an argument that is required or has a default.
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
                "Commands that can replace scripts, for programs that need not run on Redis (see docs/coordination):\n"
            );
            let mut shown = BTreeSet::new();
            for name in BUNDLED.iter().flat_map(|script| script.commands).filter(|name| shown.insert(**name)) {
                println!("{name:18}  {}", summary(name));
            }
            println!("\nScripts, which also run on Redis, each with its SHA1 and the commands that can replace it:\n");
            for script in BUNDLED {
                let sha1 = script.sha1();
                let commands = script.commands.join(" ");
                println!("{:18}  {}  {commands:26}  {}", script.name, sha1.escape_ascii(), script.summary());
            }
        }
    }
    Ok(())
}

/// Returns the summary of a command, as in COMMAND DOCS.
fn summary(command: &str) -> &'static str {
    command::table().find(command.as_bytes()).map_or("", |entry| entry.command.summary)
}
