//! The `tidegate` binary: flags to configuration to server.

use std::process::ExitCode;

use tidegate::config::{self, Config};
use tidegate::server;
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    let matches = config::command().get_matches();
    let config = match Config::from_matches(&matches) {
        Ok(config) => config,
        Err(error) => return fail(&error),
    };
    tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).with_target(false).init();
    match server::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
