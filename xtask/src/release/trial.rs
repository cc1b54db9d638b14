//! Tries the packages of a release on fresh systems: installs each, waits for a first answer of a real engine
//! on the CPU, removes it, and prints the times.

use std::fs;
use std::path::{Path, PathBuf};

use super::system::{System, SystemError};

/// Suites of Debian, and what their smallest system lacks: Python for the engine and OpenMP, which its wheel
/// does not bring.
const SUITES: [&str; 2] = ["bookworm", "trixie"];
const NEEDED: [&str; 5] = ["systemd", "python3-venv", "libgomp1", "ca-certificates", "openssl"];
/// Place of the packages in a system.
const PACKAGES: &str = "/var/tmp/packages";

/// Authorities that programs trust, in Debian.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// How a package is installed and removed, by a shell in the system. What a user's own server has kept is
/// removed by hand, but for `install.sh`: docs/install.md has the lines.
struct Way {
    name: &'static str,
    install: &'static str,
    /// The program, once it is installed.
    program: &'static str,
    remove: &'static str,
}

const WAYS: [Way; 3] = [
    Way {
        name: "archive",
        install: "sh install.sh --from . --checksum-only --prefix /usr/local",
        program: "/usr/local/bin/plimsoll",
        remove: "sh install.sh --uninstall --prefix /usr/local",
    },
    Way {
        name: "wheel",
        install: "python3 -m venv /opt/wheel && /opt/wheel/bin/pip install --no-index ./*.whl",
        program: "/opt/wheel/bin/plimsoll",
        remove: "rm -rf /opt/wheel /root/.local/state/plimsoll",
    },
    Way {
        name: "deb",
        install: "dpkg -i ./*.deb",
        program: "plimsoll",
        remove: "dpkg --purge plimsoll && rm -rf /root/.local/state/plimsoll",
    },
];

/// Steps between nothing and an answer. The engine is installed twice, since only the first time has to
/// download.
const STEPS: [&str; 5] = ["install", "engine with download", "engine", "tour", "remove"];

/// Runs one way and prints a line of milliseconds for each step.
const SCRIPT: &str = r#"
cd PACKAGES
export PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
step() {
    from=$(date +%s%3N)
    "$@" > /tmp/said 2>&1 || { cat /tmp/said; exit 1; }
    echo "$(($(date +%s%3N) - from))"
}
install() { INSTALL; }
remove() { REMOVE; }
step install
step PROGRAM engine install
PROGRAM engine remove > /tmp/said 2>&1
step PROGRAM engine install
step PROGRAM quickstart --once --listen 127.0.0.1:0
PROGRAM engine remove > /tmp/said 2>&1
step remove
rm -rf /tmp/said /root/.cache/*
"#;

/// A package with one changed byte, which may not be installed.
const CHANGED: &str = r#"
cp -r PACKAGES /var/tmp/changed
cd /var/tmp/changed
for file in *.tar.gz; do printf x | dd of="$file" bs=1 seek=4000 conv=notrunc 2> /dev/null; done
if sh install.sh --from . --checksum-only --prefix /usr/local 2>&1; then exit 1; fi
rm -rf /var/tmp/changed
"#;

#[derive(Debug, thiserror::Error)]
pub(super) enum TrialError {
    #[error(transparent)]
    System(#[from] SystemError),
    #[error("cannot copy {}: {error}", path.display())]
    Copy { path: PathBuf, error: std::io::Error },
    #[error("{suite}, {way}: the trial said {stated:?} in place of its times")]
    Read { suite: &'static str, way: &'static str, stated: String },
    #[error("{suite}, {way}: left behind: {left:?}")]
    Left { suite: &'static str, way: &'static str, left: Vec<String> },
}

/// Tries the packages in `out`; the table of all systems. Systems stay in `out/trial`, for the next trial.
pub(super) fn run(out: &Path) -> Result<String, TrialError> {
    let mut table = format!("{:10} {:8}", "system", "package");
    STEPS.iter().for_each(|step| table += &format!(" {step:>20}"));
    table += &format!(" {:>20}\n", "without download");
    for suite in SUITES {
        let folder = out.join("trial").join(suite);
        let system = match folder.exists() {
            true => System::in_folder(folder),
            false => System::of_debian(suite, &NEEDED, &folder)?,
        };
        copy(out, &system)?;
        let stated = system.run(&CHANGED.replace("PACKAGES", PACKAGES))?;
        eprintln!("{suite}: a changed byte: {}", stated.trim());
        for way in &WAYS {
            let times = tried(suite, way, &system)?;
            let mut row = format!("{suite:10} {:8}", way.name);
            times.iter().for_each(|time| row += &format!(" {:>18.1} s", seconds(*time)));
            let [install, _, engine, tour, _] = times;
            row += &format!(" {:>18.1} s\n", seconds(install + engine + tour));
            eprint!("{row}");
            table += &row;
        }
    }
    Ok(table)
}

/// Milliseconds of each step.
fn tried(suite: &'static str, way: &Way, system: &System) -> Result<[u32; 5], TrialError> {
    // The user's base folders belong to no program.
    system.run("mkdir -p /root/.local/share /root/.local/state /root/.cache")?;
    let before = system.paths()?;
    let script = SCRIPT.replace("PACKAGES", PACKAGES).replace("PROGRAM", way.program);
    let script = script.replace("INSTALL", way.install).replace("REMOVE", way.remove);
    let stated = system.run(&script)?;
    let times: Vec<u32> = stated.lines().filter_map(|line| line.parse().ok()).collect();
    let left: Vec<String> = system.paths()?.difference(&before).cloned().collect();
    if !left.is_empty() {
        return Err(TrialError::Left { suite, way: way.name, left });
    }
    times.try_into().map_err(|_| TrialError::Read { suite, way: way.name, stated })
}

fn seconds(milliseconds: u32) -> f64 {
    f64::from(milliseconds) / 1000.0
}

/// Copies the packages and this machine's authorities into the system.
fn copy(out: &Path, system: &System) -> Result<(), TrialError> {
    let to = system.folder().join(PACKAGES.trim_start_matches('/'));
    let copied = || {
        // A proxy of this machine's network may sign what the package index sends.
        fs::copy(CERTIFICATES, system.folder().join(CERTIFICATES.trim_start_matches('/')))?;
        let _ = fs::remove_dir_all(&to);
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(out)? {
            let path = entry?.path();
            if path.is_file() {
                fs::copy(&path, to.join(path.file_name().unwrap_or_default()))?;
            }
        }
        Ok(())
    };
    copied().map_err(|error| TrialError::Copy { path: out.to_owned(), error })
}
