//! Checks that the files which a model's flags name exist for the engine.
//!
//! A model with a declared memory need opens no file, and a plan does not read adapters.

use std::io;
use std::path::Path;

use plimsoll_config::{ConfiguredModel, Launch, llama_server_in};
use plimsoll_engine::program::is_shell_script;
use plimsoll_flags::ModelParams;
use plimsoll_model::split::siblings;
use plimsoll_probe::headers::ReadModelError;

use crate::launch::single_program;

/// Opens each file that the flags name on this machine; what is in it is the engine's business, which may
/// know a format that we do not.
///
/// DECISION: the paths of a wrapper are left alone. A shell script, leading arguments and a `cmd` that does
/// not begin with a llama-server may start a container, in which a path means another file.
pub(super) fn check(
    entry: &ConfiguredModel,
    engine: &[String],
    program: &Path,
    params: &ModelParams,
) -> Result<(), ReadModelError> {
    let is_engine = match &entry.launch {
        Launch::LlamaServer { .. } => single_program(entry, engine).is_some(),
        Launch::Command { argv, .. } => llama_server_in(argv) == Some(0),
    };
    if is_engine && !is_shell_script(program) {
        named(params).iter().try_for_each(|path| openable(Path::new(path)))
    } else {
        Ok(())
    }
}

/// The paths. One beside a server's address is the place of a download, which may be yet to come.
fn named(params: &ModelParams) -> Vec<String> {
    let sets = [
        (&params.model, params.remote.is_some()),
        (&params.draft_model, params.draft_remote.is_some()),
        (&params.projector, params.projector_remote.is_some()),
    ];
    let local = sets.into_iter().filter(|(_, is_fetched)| !is_fetched);
    let local = local.filter_map(|(path, _)| path.as_deref()).flat_map(siblings);
    local.chain(params.adapters.iter().chain(&params.control_vectors).cloned()).collect()
}

fn openable(path: &Path) -> Result<(), ReadModelError> {
    let unopened = |error| ReadModelError::Open { path: path.to_owned(), error };
    let about = path.metadata().map_err(unopened)?;
    if about.is_dir() {
        return Err(unopened(io::ErrorKind::IsADirectory.into()));
    }
    if about.is_file() {
        plimsoll_file::open(path).map_err(unopened)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use plimsoll_flags::ProgramKind;

    use super::*;

    fn entry(text: &str) -> ConfiguredModel {
        plimsoll_config::parse("p.toml", &format!("[models.a]\n{text}\n"), &|_| None)
            .unwrap()
            .models
            .remove(0)
    }

    fn checked(text: &str, engine: &[&str], program: &Path) -> Result<(), String> {
        let entry = entry(text);
        // Flags whose files are in a container are not this host's.
        let Some(options) = entry.launch.options() else { return Ok(()) };
        let params = options.params(ProgramKind::LlamaServer).unwrap();
        let engine: Vec<String> = engine.iter().map(|word| (*word).to_owned()).collect();
        check(&entry, &engine, program, &params).map_err(|error| error.to_string())
    }

    #[test]
    fn every_file_of_a_model_is_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let here = path("m-00001-of-00002.gguf");
        std::fs::write(&here, "a format of tomorrow").unwrap();
        let of = |flags: &str| checked(&format!("flags = '{flags}'"), &["true"], Path::new("/bin/true"));
        assert!(of(&format!("-m {here}")).unwrap_err().contains("m-00002-of-00002.gguf: No such file"));
        std::fs::write(path("m-00002-of-00002.gguf"), "").unwrap();
        assert_eq!(of(&format!("-m {here}")), Ok(()));
        for flag in ["-md", "-mm", "--lora", "--control-vector"] {
            let error = of(&format!("-m {here} {flag} {}", path("none.gguf"))).unwrap_err();
            assert!(error.contains("none.gguf: No such file"), "{flag}: {error}");
            assert_eq!(of(&format!("-m {here} {flag} {here}")), Ok(()), "{flag}");
        }
        let scaled = format!("-m {here} --lora-scaled {}:0.5", path("none.gguf"));
        assert!(of(&scaled).unwrap_err().contains("none.gguf: No such file"));
        assert!(of(&format!("-m {}", path(""))).unwrap_err().contains("directory"));
    }

    #[test]
    fn models_fetched_by_the_engine_may_be_missing_locally() {
        let of = |flags: &str| checked(&format!("flags = '{flags}'"), &["true"], Path::new("/bin/true"));
        assert_eq!(of("-hf user/repo"), Ok(()));
        assert_eq!(of("-hf user/repo -m /nowhere/m.gguf"), Ok(()));
        assert_eq!(of("-mu http://localhost/m.gguf -m /nowhere/m.gguf"), Ok(()));
        assert!(of("-hf user/repo -md /nowhere/d.gguf").is_err());
    }

    #[test]
    fn the_paths_of_a_wrapper_are_its_own_business() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("llama-server");
        std::fs::write(&script, "#!/usr/bin/env bash\nexec docker run image \"$@\"\n").unwrap();
        let flags = "flags = '-m /nowhere/m.gguf'";
        assert!(checked(flags, &["true"], Path::new("/bin/true")).is_err());
        assert_eq!(checked(flags, &["true", "run"], Path::new("/bin/true")), Ok(()));
        assert_eq!(checked(flags, &["true"], &script), Ok(()));
        let command = |before: &str| {
            let text = format!("cmd = '{before}llama-server --port ${{PORT}} -m /nowhere/m.gguf'");
            checked(&text, &[], Path::new("/bin/true"))
        };
        assert!(command("").is_err());
        assert_eq!(command("docker run image "), Ok(()));
    }

    #[test]
    fn a_fifo_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        assert!(openable(&fifo).is_ok());
    }
}
