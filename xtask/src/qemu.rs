//! Tests `plimsoll reclaim` on a kernel with a contiguous memory pool (CMA): Debian for arm64 in QEMU.
//!
//! DECISION: the guest has the architecture of a Jetson and a similar kernel, and everything comes from
//! Debian packages. Debian's amd64 kernel has no contiguous pool; its arm64 kernel has one. The guest
//! consists of a kernel, one archive and one sparse disk; `bench/qemu/init` runs in it. The test is not part
//! of CI, because it takes some minutes and packages of 25 MB.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::debian::{AptState, run_to_end, unpack};

mod archive;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const PACKAGES: &[&str] = &["qemu-system-arm", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "e2fsprogs"];
const PROGRAMS: &[&[&str]] =
    &[&["qemu-system-aarch64", "--version"], &["aarch64-linux-gnu-gcc", "--version"], &["mkfs.ext4", "-V"]];
/// Debian's kernel for virtual machines; the package of the version depends on it.
const KERNEL: &str = "linux-image-cloud-arm64";
const MODULES: &[&str] = &["virtio", "virtio_ring", "virtio_mmio", "virtio_blk"];
/// What the guest says last if all is well.
const WELL: &str = "qemu-reclaim: ok";
/// The guest in software emulation takes three to five minutes.
const SECONDS: &str = "1500";

pub(crate) fn run(root: &Path) -> ExitCode {
    match reclaimed(root) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("qemu-reclaim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn reclaimed(root: &Path) -> io::Result<bool> {
    let folder = target(root).join("qemu-reclaim");
    fs::create_dir_all(&folder)?;
    install()?;
    let packages = unpacked(&folder)?;
    let programs = built(root)?;
    let kernel = one_in(&packages.join("boot"), "vmlinuz-")?;
    let archive = folder.join("initramfs.cpio");
    fs::write(&archive, guest(root, &packages, &programs)?)?;
    let disk = folder.join("disk.img");
    fs::File::create(&disk)?.set_len(4 << 30)?;
    run_to_end(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk))?;
    boot(&kernel, &archive, &disk, &folder.join("console.log"))
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn install() -> io::Result<()> {
    let there = |words: &&&[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output();
        output.is_ok_and(|output| output.status.success())
    };
    if PROGRAMS.iter().filter(there).count() < PROGRAMS.len() {
        run_to_end(Command::new("apt-get").arg("update"))?;
        let install = ["install", "--yes", "--no-install-recommends"];
        run_to_end(Command::new("apt-get").args(install).args(PACKAGES))?;
    }
    run_to_end(Command::new("rustup").args(["target", "add", TARGET]))
}

/// The kernel and busybox for arm64, in a state of apt of their own, so that this machine does not become one
/// of two kinds.
fn unpacked(folder: &Path) -> io::Result<PathBuf> {
    let packages = folder.join("packages");
    if packages.join("bin/busybox").exists() {
        return Ok(packages);
    }
    let foreign = ["APT::Architecture=arm64", "APT::Architectures=arm64"].map(str::to_owned);
    let apt = AptState::open(folder.join("apt"), &foreign)?;
    let depends = apt.command("apt-cache").args(["depends", KERNEL]).output()?;
    let depends = String::from_utf8_lossy(&depends.stdout);
    let kernel = depends.split_whitespace().find(|word| word.starts_with("linux-image-") && *word != KERNEL);
    let kernel = kernel.ok_or_else(|| io::Error::other(format!("{KERNEL} depends on no kernel")))?;
    apt.download(&[kernel, "busybox-static"])?;
    unpack(&apt.packages()?, &packages)?;
    Ok(packages)
}

/// The programs of the guest, which need no library and carry no symbols.
fn built(root: &Path) -> io::Result<[PathBuf; 2]> {
    let folder = target(root).join("qemu-reclaim/cargo");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--target", TARGET, "--package", "plimsoll", "--package", "bench"]);
    cargo.args(["--bin", "plimsoll", "--bin", "fragment"]).current_dir(root);
    cargo.env("CARGO_TARGET_DIR", &folder);
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static");
    run_to_end(&mut cargo)?;
    let built = folder.join(TARGET).join("debug");
    let programs = ["plimsoll", "fragment"].map(|name| folder.join(name));
    for program in &programs {
        let name = program.file_name().unwrap_or_default();
        run_to_end(Command::new("aarch64-linux-gnu-strip").arg("-o").arg(program).arg(built.join(name)))?;
    }
    Ok(programs)
}

/// The guest's first files.
fn guest(root: &Path, packages: &Path, programs: &[PathBuf]) -> io::Result<Vec<u8>> {
    let mut files = archive::Archive::default();
    for folder in ["bin", "dev", "etc", "modules", "proc", "sys", "tmp"] {
        files.folder(folder);
    }
    files.file("init", 0o755, &fs::read(root.join("bench/qemu/init"))?);
    files.file("etc/passwd", 0o644, b"root::0:0::/:/bin/sh\nuser::1000:1000::/:/bin/sh\n");
    files.file("bin/busybox", 0o755, &fs::read(packages.join("bin/busybox"))?);
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        files.file(&format!("bin/{name}"), 0o755, &fs::read(program)?);
    }
    for module in MODULES {
        let name = format!("{module}.ko");
        let path = found(&packages.join("lib/modules"), &name)?;
        files.file(&format!("modules/{name}"), 0o644, &fs::read(path)?);
    }
    Ok(files.bytes())
}

/// Runs the guest to its end, showing and keeping what it says; true if all went well in it.
fn boot(kernel: &Path, archive: &Path, disk: &Path, log: &Path) -> io::Result<bool> {
    let mut qemu = Command::new("timeout");
    qemu.args([
        SECONDS,
        "qemu-system-aarch64",
        "-M",
        "virt",
        "-cpu",
        "cortex-a72",
        "-smp",
        "2",
        "-m",
        "1536",
    ]);
    qemu.args(["-nographic", "-no-reboot", "-nic", "none", "-kernel"]).arg(kernel);
    qemu.arg("-initrd").arg(archive);
    qemu.args(["-append", "console=ttyAMA0 cma=256M panic=-1 quiet"]);
    qemu.arg("-drive").arg(format!("if=none,id=disk,format=raw,file={}", disk.display()));
    qemu.args(["-device", "virtio-blk-device,drive=disk"]);
    let mut child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut stated = Vec::new();
    if let Some(console) = child.stdout.take() {
        io::copy(&mut io::BufReader::new(console), &mut Both(&mut stated))?;
    }
    child.wait()?;
    fs::write(log, &stated)?;
    Ok(String::from_utf8_lossy(&stated).lines().any(|line| line.trim() == WELL))
}

/// Keeps what it shows.
struct Both<'a>(&'a mut Vec<u8>);

impl io::Write for Both<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        io::stdout().write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

fn one_in(folder: &Path, prefix: &str) -> io::Result<PathBuf> {
    let mut entries = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    entries.find(named).ok_or_else(|| io::Error::other(format!("no {prefix} in {}", folder.display())))
}

fn found(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder)?.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|file| file == name) {
                return Ok(path);
            }
        }
    }
    Err(io::Error::other(format!("no {name} in {}", folder.display())))
}
