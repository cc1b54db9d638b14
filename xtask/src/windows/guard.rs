//! Process tests of guard for Windows under Wine: budgets, ggml's pool, and the ways into a program.
//!
//! The engine is ggml's own backend for CUDA over stand-ins of NVIDIA's libraries
//! (`doubles/fake-cuda-windows`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use plimsoll_pe::{Image, Layout};
use plimsoll_specimens::{Changes, write};

use super::backends;
use super::{Toolchain, wine};
use crate::debian::run_to_end;
use crate::test::Outcome;

mod decoding;

use self::decoding::{Decoded, PROGRAM};

const DOUBLES: &str = "doubles/fake-cuda-windows";
const LIBRARIES: [&str; 3] = ["nvcuda", "cudart64_12", "cublas64_12"];
const PROGRAMS: [&str; 3] = ["decode", "client", "pool_user"];
const POOL: &str = ".?AUggml_cuda_pool_leg@@";
/// Builds of the backend in which the pool's table must be found.
const FEWEST_BUILDS: usize = 8;
/// Most processor time that guard may add to a program until the program itself begins.
///
/// DECISION: processor time, because other work of the machine stretches a clock's time at will.
const LOADED_WITHIN: Duration = Duration::from_millis(300);
/// The card of the stand-ins, as NVML shows it.
const CARD: &str = r#"[{"uuid": "GPU-00112233-4455-6677-8899-aabbccddeeff", "name": "NVIDIA GeForce RTX 3060",
    "total": 12884901888, "free": 12884901888, "cc": [8, 6], "pci": "00000000:01:00.0"}]"#;
/// Blocks of 64 MiB that fit a budget of 500 MiB.
const BLOCKS: u32 = 7;

/// The program `plimsoll`, and a folder with the engine, stand-ins and programs.
pub(super) struct Trial<'a> {
    toolchain: &'a Toolchain,
    plimsoll: &'a Path,
    folder: PathBuf,
}

type Test<'a> = fn(&Trial<'a>) -> io::Result<bool>;

fn tests<'a>() -> [(&'static str, Test<'a>); 11] {
    [
        ("the pool of a quantised cache grows by at most 128 MiB, and ggml's own by 1 GiB", |trial| {
            trial.grows(20_000)
        }),
        ("a prompt that is longer likewise", |trial| trial.grows(32_760)),
        ("a budget of 800 MiB is enough for guard's pool, and not for ggml's", Trial::keeps_a_budget),
        ("a planned pool frees nothing during the prompt", Trial::plans_the_pool),
        ("each way to find the driver leads to guard", Trial::hooks_each_way),
        ("two processes never pass the budget of their tree", Trial::shares_a_budget),
        ("a class of another layout is left alone, and told once", Trial::leaves_an_unknown_class),
        ("a program without the class runs as before", Trial::leaves_other_programs),
        ("ggml loads guard as a backend", Trial::is_loaded_as_backend),
        ("guard is loaded within 300 ms of processor time", Trial::is_loaded_quickly),
        ("the table of the pool is found in eight builds", |_| finds_tables()),
    ]
}

/// Runs each test, and names those that fail.
pub(super) fn run(toolchain: &Toolchain, plimsoll: &Path) -> io::Result<Outcome> {
    let trial = Trial { toolchain, plimsoll, folder: prepared(toolchain)? };
    super::parts::judged(tests(), |test| test(&trial))
}

/// Builds guard and the doubles, in a folder beside links to the engine.
fn prepared(toolchain: &Toolchain) -> io::Result<PathBuf> {
    let mut cargo = toolchain.cargo("build");
    run_to_end(cargo.args(["--profile", "guard", "--package", "plimsoll-guard-windows"]))?;
    run_to_end(toolchain.cargo("build").args(["--package", "fake-nvml"]))?;
    let built = toolchain.built().join("guard");
    // The name under which the program looks for it; cargo knows the other system's library by that name.
    fs::copy(built.join("plimsoll_guard_windows.dll"), built.join("plimsoll_guard.dll"))?;
    let folder = toolchain.work("guard");
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(backends::llama()?)?.flatten() {
        let link = folder.join(entry.file_name());
        if !link.exists() {
            std::os::unix::fs::symlink(entry.path(), link)?;
        }
    }
    let sources = toolchain.root.join(DOUBLES);
    for name in LIBRARIES {
        compile(&["-shared"], &sources.join(format!("{name}.c")), &folder.join(format!("{name}.dll")), &[])?;
    }
    let linked = [folder.join("nvcuda.dll"), folder.join("cudart64_12.dll")];
    for name in PROGRAMS {
        compile(&[], &sources.join(format!("{name}.c")), &folder.join(format!("{name}.exe")), &linked)?;
    }
    fs::copy(folder.join("decode.exe"), folder.join(PROGRAM))?;
    let changes = Changes { layers: Some(2), ..Changes::default() };
    write("cal-deep", &folder.join("model.gguf"), &changes).map_err(io::Error::other)?;
    Ok(folder)
}

fn compile(flags: &[&str], source: &Path, target: &Path, linked: &[PathBuf]) -> io::Result<()> {
    let mut compiler = Command::new(wine::LINKER);
    compiler.args(["-O2", "-Wno-builtin-declaration-mismatch"]).args(flags).arg("-o").arg(target);
    run_to_end(compiler.arg(source).args(linked))
}

impl Trial<'_> {
    /// `plimsoll run` with options, and a program of the folder with its words.
    fn run(&self, options: &[&str], program: &str, words: &[&str]) -> Command {
        let mut command = self.toolchain.wine();
        command.arg(self.plimsoll).arg("run").args(options).arg("--").arg(self.drive(program)).args(words);
        command.current_dir(&self.folder).stdin(Stdio::null());
        let nvml = self.toolchain.built().join("debug/nvidia_ml.dll");
        command.env("PLIMSOLL_NVML", format!("Z:{}", nvml.display())).env("PLIMSOLL_FAKE_NVML_CARDS", CARD);
        command
    }

    /// The path of a file of the folder as Windows writes it.
    fn drive(&self, file: &str) -> String {
        format!("Z:{}", self.folder.join(file).display()).replace('/', "\\")
    }

    /// Prints how far the pool has grown, with guard's and with ggml's.
    fn grows(&self, tokens: u32) -> io::Result<bool> {
        let (ours, ggml) = (Decoded::of(self, &["--pool", "ours"], tokens)?, Decoded::of(self, &[], tokens)?);
        println!(
            "windows: {tokens} tokens, cache of q8_0: guard's pool grew by {:.1} MiB, ggml's by {:.1} MiB",
            ours.growth_mib(),
            ggml.growth_mib()
        );
        // More tokens, larger copies of the cache: 128 MiB for the 20 000 of the report.
        let most = 128.0 * f64::from(tokens.max(20_000)) / 20_000.0;
        Ok(ours.code == Some(0) && ours.growth_mib() <= most && ggml.growth_mib() >= 1000.0)
    }

    fn keeps_a_budget(&self) -> io::Result<bool> {
        let mut holds = true;
        for tokens in [20_000, 32_760] {
            let ours = Decoded::of(self, &["--card", "0=800MiB", "--pool", "ours"], tokens)?;
            let ggml = Decoded::of(self, &["--budget", "800MiB"], tokens)?;
            println!(
                "windows: {tokens} tokens within 800 MiB: guard's pool ends with {:?} at a peak of {:.1} MiB, ggml's \
                    with {:?}",
                ours.code,
                ours.peak_mib(),
                ggml.code
            );
            let is_refused = ggml.code == Some(3)
                && ggml.stated.contains("CUDA error: out of memory")
                && ggml.stated.matches("plimsoll guard: card 0: a request for").count() == 1;
            holds &= ours.code == Some(0) && ours.peak_mib() <= 800.0 && is_refused;
        }
        Ok(holds)
    }

    fn plans_the_pool(&self) -> io::Result<bool> {
        let options = ["--card", "0=800MiB", "--pool", "plan", "--build", "llama.cpp@8390"];
        let mut holds = true;
        for tokens in [20_000, 32_760] {
            let planned = Decoded::of(self, &options, tokens)?;
            println!(
                "windows: {tokens} tokens in a planned pool: {} allocations and {} frees during the prompt, growth {:.1} MiB",
                planned.allocations,
                planned.frees,
                planned.growth_mib()
            );
            holds &= planned.code == Some(0) && planned.frees == 0 && planned.allocations <= 1;
        }
        Ok(holds)
    }

    fn hooks_each_way(&self) -> io::Result<bool> {
        let mut holds = true;
        for way in ["import", "name", "driver", "runtime"] {
            let printed = self.printed(&["--budget", "500MiB"], "client.exe", &[way])?;
            holds &= printed.contains(&format!("{way}: {BLOCKS} blocks, then 2"));
        }
        let child = [&self.drive("client.exe"), "driver"];
        let printed = self.printed(&["--budget", "500MiB"], "client.exe", &["spawn", child[0], child[1]])?;
        Ok(holds && printed.contains(&format!("driver: {BLOCKS} blocks, then 2")))
    }

    fn shares_a_budget(&self) -> io::Result<bool> {
        let words = ["both", &self.drive("client.exe"), "driver"];
        // Both have allocated before one of them ends.
        let mut both = self.run(&["--budget", "500MiB"], "client.exe", &words);
        let printed = text(both.env("HOLD_MS", "1500"))?;
        let blocks = printed
            .lines()
            .filter_map(|line| line.strip_prefix("driver: ")?.split_once(" blocks")?.0.parse::<u32>().ok());
        let (processes, blocks) =
            blocks.fold((0, 0), |(processes, sum), blocks| (processes + 1, sum + blocks));
        println!("windows: {processes} processes share 500 MiB and hold {blocks} blocks of 64 MiB");
        Ok(processes == 2 && blocks == BLOCKS && printed.contains("in 2 processes"))
    }

    fn leaves_an_unknown_class(&self) -> io::Result<bool> {
        let printed = self.printed(&["--pool", "ours"], "pool_user.exe", &[])?;
        let told =
            "plimsoll guard: ggml's legacy pool in pool_user.exe is not replaced: its layout is unknown";
        Ok(printed.contains("own methods: 4") && printed.matches(told).count() == 1)
    }

    fn leaves_other_programs(&self) -> io::Result<bool> {
        let printed = self.printed(&["--pool", "ours", "--budget", "500MiB"], "client.exe", &["import"])?;
        let told = "ggml's legacy pool is not replaced: the program has not loaded it";
        Ok(printed.contains(&format!("import: {BLOCKS} blocks")) && printed.matches(told).count() == 1)
    }

    /// The program asks ggml to load guard, and nothing injects it.
    fn is_loaded_as_backend(&self) -> io::Result<bool> {
        let guard = self.toolchain.built().join("guard/plimsoll_guard.dll");
        let guard = format!("Z:{}", guard.display());
        let decoded = Decoded::as_backend(self, "budget=838860800 pool=ours", &guard, 20_000)?;
        println!(
            "windows: loaded by ggml, guard's pool ends with {:?} at a peak of {:.1} MiB",
            decoded.code,
            decoded.peak_mib()
        );
        Ok(decoded.code == Some(0) && decoded.growth_mib() <= 128.0)
    }

    /// Compares the program with guard in it and without, the least of some starts.
    fn is_loaded_quickly(&self) -> io::Result<bool> {
        let mut times = [None; 2];
        for _ in 0..5 {
            let mut alone = self.toolchain.wine();
            alone.arg(self.drive("client.exe")).arg("none").current_dir(&self.folder);
            let guarded = self.run(&["--pool", "ours"], "client.exe", &["none"]);
            for (least, mut start) in times.iter_mut().zip([alone, guarded]) {
                *least = [*least, processor_time(&text(&mut start)?)].into_iter().flatten().min();
            }
        }
        let [Some(alone), Some(guarded)] = times else { return Ok(false) };
        let added = guarded.saturating_sub(alone);
        println!("windows: a program takes {alone:?} to start, and {added:?} more with guard in it");
        Ok(added <= LOADED_WITHIN)
    }

    /// Stdout and stderr of a guarded program.
    fn printed(&self, options: &[&str], program: &str, words: &[&str]) -> io::Result<String> {
        text(&mut self.run(options, program, words))
    }
}

/// Stdout and stderr of a program.
fn text(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).replace('\r', ""))
}

/// What `client.exe none` prints of itself.
fn processor_time(printed: &str) -> Option<Duration> {
    let millis = printed.lines().find_map(|line| line.strip_prefix("processor: ")?.strip_suffix(" ms"))?;
    millis.parse().ok().map(Duration::from_millis)
}

/// Finds the table of three methods in the backends of several releases.
fn finds_tables() -> io::Result<bool> {
    let mut found = 0;
    for file in backends::begins()? {
        let bytes = fs::read(&file)?;
        let image = Image::read(&bytes, Layout::File).map_err(io::Error::other)?;
        match image.virtual_table(POOL) {
            Some(Ok(table)) if table.methods.len() == 3 => found += 1,
            other => eprintln!("windows: {}: {other:?}", file.display()),
        }
    }
    println!("windows: the table of ggml's pool is found in {found} builds");
    Ok(found >= FEWEST_BUILDS)
}
