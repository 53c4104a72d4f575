//! Builds the LuaJIT that runs scripts: the source of the crate `luajit-src`, with the patches in `luajit/` applied.
//!
//! `luajit-src` copies the source to a folder of the build and runs `make` there, both in one step that leaves no room
//! in between. So the patches are applied by `make` itself. GNU make reads the files named by the variable `MAKEFILES`
//! before the Makefile, and the one written here runs this program again, in the source folder and with [`PATCHING`]
//! set.
//!
//! Each patch opens with its reason. A patch that no longer fits the source ends the build.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use diffy::patch_set::{ParseOptions, PatchSet};

/// Set when `make` runs this program: the folder that holds the patches.
const PATCHING: &str = "TIDEGATE_LUAJIT_PATCHES";

/// Printed to tell `make` that all patches were applied.
const DONE: &str = "patched";

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(patches) = env::var_os(PATCHING) {
        patch(Path::new(&patches), Path::new("."))?;
        println!("{DONE}");
        return Ok(());
    }
    let patches = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("luajit");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", patches.display());

    let before_make = PathBuf::from(env::var("OUT_DIR")?).join("patch.mk");
    let this_program = env::current_exe()?;
    fs::write(
        &before_make,
        format!(
            "ifeq ($(MAKELEVEL),0)\nifneq ($(shell '{}'),{DONE})\n\
             $(error a patch of LuaJIT failed, see above)\nendif\nendif\n",
            this_program.display()
        ),
    )?;
    // SAFETY: no other thread runs.
    unsafe {
        env::set_var("MAKEFILES", &before_make);
        env::set_var(PATCHING, &patches);
        env::set_var("MAKEFLAGS", format!("-j{}", env::var("NUM_JOBS")?));
        // LuaJIT is compiled as one unit, so that the compiler inlines across its files.
        env::set_var("LJCORE_O", "ljamalg.o");
    }
    let artifacts = luajit_src::Build::new().build();
    println!("cargo:rustc-link-search=native={}", artifacts.lib_dir().display());
    // Links the whole archive, wherever it comes in the order: the crate `mlua` refers to it, too.
    println!("cargo:rustc-link-lib=static:+whole-archive=luajit");
    Ok(())
}

/// Applies all patches, in the order of their names, to the source in `source`, and adds our own files.
fn patch(patches: &Path, source: &Path) -> Result<(), Box<dyn Error>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(patches)?.map(|file| Ok(file?.path())).collect::<Result<_, Box<dyn Error>>>()?;
    files.sort();
    for path in files {
        let name = path.file_name().unwrap_or_default();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("patch") => {
                apply(&fs::read_to_string(&path)?, source).map_err(|error| format!("{}: {error}", path.display()))?
            }
            Some("c" | "h") => drop(fs::copy(&path, source.join(name))?),
            _ => {}
        }
    }
    Ok(())
}

/// Applies one patch, whose file names are relative to LuaJIT's folder `src`.
fn apply(text: &str, source: &Path) -> Result<(), Box<dyn Error>> {
    let (_reason, changes) = text.split_once("\ndiff --git ").ok_or("no reason, or no change")?;
    for change in PatchSet::parse(&format!("diff --git {changes}"), ParseOptions::gitdiff()) {
        let change = change?;
        let diffy::patch_set::FileOperation::Modify { original, .. } = change.operation().strip_prefix(2) else {
            return Err("only changes of files are known".into());
        };
        let path = source.join(original.as_ref());
        let changed = change.patch().as_text().ok_or("a binary file")?;
        let changed =
            diffy::apply(&fs::read_to_string(&path)?, changed).map_err(|error| format!("{original}: {error}"))?;
        fs::write(path, changed)?;
    }
    Ok(())
}
