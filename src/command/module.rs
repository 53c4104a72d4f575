//! MODULE: no module is loaded, and none can be.

use super::help::help;
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};

fn list(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.array(0);
    Ok(())
}

fn load(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    allowed(ctx)?;
    let path = args.bytes()?;
    tracing::warn!(path = %String::from_utf8_lossy(path), "MODULE LOAD: this server loads no modules");
    Err(Error::text("ERR Error loading the extension. Please check the server logs."))
}

fn unload(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    allowed(ctx)?;
    Err(Error::text("ERR Error unloading module: no such module with that name"))
}

/// Whether `enable-module-command` lets this client change modules.
fn allowed(ctx: &Ctx<'_>) -> Done {
    if ctx.server.config.enable_module_command.allows(ctx.session.is_local) {
        return Ok(());
    }
    Err(Error::text(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from \
         a \
         local connection, otherwise you need to set this option in the configuration file, and then restart the \
         server.",
    ))
}

/// Fields that most subcommands of MODULE share.
const SUB: Command = Command {
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_ASYNC_LOADING),
    group: Group::Server,
    since: "4.0.0",
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "module",
    arity: -2,
    group: Group::Server,
    since: "4.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for module commands; there are no modules.",
    sub: &[
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING.union(Flags::STALE),
            since: "5.0.0",
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..SUB
        },
        Command {
            name: "list",
            arity: 2,
            flags: Flags::ADMIN.union(Flags::NOSCRIPT),
            complexity: "O(N) where N is the number of loaded modules",
            summary: "Returns the loaded modules: none.",
            tips: &["nondeterministic_output_order"],
            run: Run::Now(list),
            ..SUB
        },
        Command {
            name: "load",
            arity: -3,
            summary: "Fails: the server loads no modules.",
            syntax: "path [arg...]",
            run: Run::Now(load),
            ..SUB
        },
        Command {
            name: "loadex",
            arity: -3,
            since: "7.0.0",
            summary: "Fails: the server loads no modules.",
            syntax: "path [CONFIG name value]:configs... [ARGS args...]",
            run: Run::Now(load),
            ..SUB
        },
        Command {
            name: "unload",
            arity: 3,
            summary: "Fails: no module is loaded.",
            syntax: "name",
            run: Run::Now(unload),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
