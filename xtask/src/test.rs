//! Everything CI checks, in the order in which it fails fastest, with one closing line of counts.
//!
//! A step that installs something (the CPU engine, the OpenAI client) does so by name, so that a fresh
//! machine with Rust, Python and a C compiler passes.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

mod count;
mod unsteady;

use count::Count;

/// A step: what it is called, what it runs.
struct Step {
    name: &'static str,
    command: &'static [&'static str],
}

/// The step whose failures are looked at twice.
const TESTS: &str = "tests";

const STEPS: &[Step] = &[
    Step {
        name: "format",
        command: &["cargo", "fmt", "--all", "--check"],
    },
    Step {
        name: "tidy",
        command: &["cargo", "run", "--quiet", "--package", "xtask", "--", "tidy"],
    },
    Step {
        name: "lints",
        command: &[
            "cargo",
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ],
    },
    Step {
        name: "docs",
        command: &[
            "cargo",
            "doc",
            "--no-deps",
            "--workspace",
            "--config",
            "build.rustdocflags=[\"--deny\",\"warnings\"]",
        ],
    },
    Step {
        name: "build",
        command: &["cargo", "build", "--workspace", "--bins", "--lib"],
    },
    Step {
        name: "cross",
        command: &["cargo", "run", "--quiet", "--package", "xtask", "--", "cross"],
    },
    // The same random cases each time, so that what it says is about the change; plain `cargo test` looks for new ones.
    Step {
        name: TESTS,
        command: &[
            "env",
            "PROPTEST_RNG_SEED=20",
            "cargo",
            "test",
            "--workspace",
            "--no-fail-fast",
        ],
    },
    // A folder of its own, because the flag rebuilds everything.
    Step {
        name: "loom",
        command: &[
            "env",
            "RUSTFLAGS=--cfg loom",
            "CARGO_TARGET_DIR=target/loom",
            "cargo",
            "test",
            "--package",
            "plimsoll-pool",
            "--package",
            "plimsoll-wire",
            "--test",
            "loom",
        ],
    },
    Step {
        name: "guard",
        command: &["cargo", "run", "--quiet", "--package", "xtask", "--", "guard"],
    },
    Step {
        name: "artifacts",
        command: &[
            "cargo",
            "run",
            "--quiet",
            "--package",
            "xtask",
            "--",
            "check-artifacts",
        ],
    },
];

/// Runs the steps whose names are in `only`, or all of them.
pub(crate) fn run(root: &Path, only: &[&str]) -> ExitCode {
    if let Some(unknown) = only
        .iter()
        .find(|name| STEPS.iter().all(|step| step.name != **name))
    {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        eprintln!("xtask: no step `{unknown}`; the steps are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let mut count = Count::default();
    let (mut failed, mut unsteady) = (Vec::new(), Vec::new());
    for step in STEPS
        .iter()
        .filter(|step| only.is_empty() || only.contains(&step.name))
    {
        let start = Instant::now();
        eprintln!("── {} ──", step.name);
        let mut passed = execute(root, step, &mut count);
        if !passed
            && step.name == TESTS
            && let Some(names) = unsteady::passed_alone(root, &mut count)
        {
            passed = true;
            unsteady.extend(names);
        }
        let word = if passed { "ok" } else { "FAILED" };
        eprintln!("── {}: {word}, {:.0?} ──", step.name, start.elapsed());
        if !passed {
            failed.push(step.name);
        }
    }
    for name in &unsteady {
        eprintln!("unsteady: {name} failed, then passed alone: a race to be found, see its output above");
    }
    if !failed.is_empty() {
        eprintln!("failed: {}", failed.join(", "));
    }
    println!(
        "{} passed, {} failed",
        count.passed,
        count.failed.max(failed.len())
    );
    ExitCode::from(u8::from(!failed.is_empty()))
}

/// Runs one step with its output shown as it comes; test results in it are counted.
fn execute(root: &Path, step: &Step, count: &mut Count) -> bool {
    let child = Command::new(step.command[0])
        .args(&step.command[1..])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cannot run {}: {error}", step.command[0]);
            return false;
        }
    };
    if let Some(output) = child.stdout.take() {
        count.read(output);
    }
    child.wait().is_ok_and(|status| status.success())
}
