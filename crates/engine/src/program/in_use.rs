//! Finds out whether a process still runs an installed engine, before it is removed.

use std::path::Path;

use procfs::process::{Process, all_processes};

use super::EngineHome;

/// Returns a process that runs an engine of `home`, and its name.
pub fn in_use(home: &EngineHome) -> Option<(i32, String)> {
    let folder = home.engines().canonicalize().ok()?;
    // By the command line too, since the engine is a script: `python llama-server …`.
    let uses = |process: &Process| {
        let words = process.cmdline().unwrap_or_default();
        words.iter().take(2).any(|word| Path::new(word).starts_with(&folder))
            || process.exe().is_ok_and(|program| program.starts_with(&folder))
    };
    // Processes of other users may be hidden, and cannot be asked for.
    let found = all_processes().ok()?.flatten().find(uses)?;
    let name = found.stat().map(|stat| stat.comm).unwrap_or_default();
    Some((found.pid(), name))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_script_that_runs_below_the_home_is_found_and_a_dead_one_is_not() {
        let place = tempfile::tempdir().unwrap();
        let home = EngineHome::at(place.path());
        assert_eq!(in_use(&home), None);
        let folder = home.engines().join("cpu");
        fs::create_dir_all(&folder).unwrap();
        let script = folder.join("llama-server");
        fs::write(&script, "read line\n").unwrap();
        let mut engine = Command::new("sh").arg(&script).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let found = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            in_use(&home)
        });
        assert_eq!(found.map(|(pid, _)| pid.unsigned_abs()), Some(engine.id()));
        engine.kill().unwrap();
        engine.wait().unwrap();
        assert_eq!(in_use(&home), None);
    }
}
