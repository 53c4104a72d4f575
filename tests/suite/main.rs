//! The black-box suite. Tests that talk to a running server, and suites of other projects that judge it, are one test
//! binary, so that there is one link instead of many.
//!
//! Each module starts the servers it needs through [`harness`]. The server under test is the `tidegate` of this build,
//! or the command that `SUITE_SERVER` names. `SUITE_SERVER=redis-server cargo test --test suite` runs the whole suite
//! against Redis itself: a failure there is a fault of the suite. Tests that compare with Redis are skipped, and
//! reported as skipped, where no redis-server is installed ([`oracle`]).

mod access;
mod alerts;
mod all_or_nothing;
mod backup;
mod bounds;
mod browser;
mod bundled;
mod caching;
mod carried;
mod changes;
mod checked;
mod client_memory;
mod clients;
mod cluster;
mod command_line;
mod command_table;
mod configuration;
mod connection_limits;
mod console;
mod coordination;
mod crowd;
mod differential;
mod durable;
mod ending;
mod escapes;
mod events;
mod eviction;
mod feed;
mod floors;
mod formats;
mod group;
mod guides;
mod handover;
mod harness;
mod histories;
mod hotkeys;
mod in_process;
mod info;
mod io_threads;
mod kills;
mod language;
mod lasting;
mod latency;
mod ldb;
mod leases;
mod limits;
mod listening;
mod logging;
mod looking;
mod maxmemory;
mod memory;
mod metrics;
mod monitor;
mod moving;
mod newest;
mod no_space;
mod once;
mod oracle;
mod output_limits;
mod pages;
mod pages_shell;
mod pause;
mod payloads;
mod power_loss;

mod protocol;
mod queues_circles;
mod queues_delay;
mod queues_policy;
mod recipes;
mod regressions;
mod replica;
mod resp;
mod rollback;
mod scenarios;
mod script_limits;
mod sentinel;
mod sizing;
mod slow_disk;
mod slow_turns;
mod snapshots;
mod stock;
mod syncing;
mod tickets;
mod tidy;
mod tls;
mod tour;
mod transcripts;
mod who;
