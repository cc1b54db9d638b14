//! Test of the installed service in virtual machines: Debian boots with systemd, and `bench/qemu/service`
//! runs the service.
//!
//! DECISION: the image is built with debootstrap and Debian's own kernel, not downloaded. Only packages are
//! fetched, and the machine equals a fresh Debian after `apt install`.

use std::os::unix::fs::PermissionsExt;

use super::installed::built;
use super::*;

/// What the trial needs beyond Debian's smallest system.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,curl,procps,initramfs-tools,linux-image-cloud-amd64";
const TRIAL: &str = "\
[Unit]
Description=Trial of the packaged service
After=systemd-user-sessions.service

[Service]
ExecStart=/opt/trial
# A machine that hangs ends as well.
RuntimeMaxSec=1500
FailureAction=poweroff-force

[Install]
WantedBy=multi-user.target
";
/// Without KVM the machine is emulated, at a tenth of the speed, and builds may run beside it. The trial ends
/// itself sooner by its own clock, which stands while the machine is not scheduled.
const SECONDS: &str = "5400";

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
    let stated = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}\n{stated}\n{}", String::from_utf8_lossy(&output.stderr));
    stated
}

/// The same package under a newer version.
fn newer(package: &Path, folder: &Path, to: &Path) {
    let unpacked = folder.join("newer");
    done(Command::new("dpkg-deb").arg("--raw-extract").args([package, &unpacked]));
    let control = unpacked.join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    fs::write(&control, text.replace(VERSION, &format!("{VERSION}+newer"))).unwrap();
    done(Command::new("dpkg-deb").args(["--root-owner-group", "-Zgzip", "--build"]).args([&unpacked, to]));
}

/// A disk with a bootable system, the packages and the trial.
fn disk(suite: &str, package: &Path, folder: &Path) -> PathBuf {
    let system = folder.join("system");
    let mut make = Command::new("debootstrap");
    done(make.args(["--variant=minbase", "--include", PACKAGES, suite]).arg(&system));
    let opt = system.join("opt");
    fs::copy(package, opt.join("plimsoll.deb")).unwrap();
    newer(package, folder, &opt.join("newer.deb"));
    fs::copy(crate::guard::target(&root()).join("debug/fake-engine"), opt.join("fake-engine")).unwrap();
    fs::copy(root().join("bench/qemu/service"), opt.join("trial")).unwrap();
    fs::set_permissions(opt.join("trial"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(system.join("etc/systemd/system/trial.service"), TRIAL).unwrap();
    fs::write(system.join("etc/fstab"), "/dev/vda / ext4 defaults 0 1\n").unwrap();
    fs::write(system.join("etc/hostname"), "trial\n").unwrap();
    // `enable` needs no running systemd.
    done(Command::new("chroot").arg(&system).args(["systemctl", "enable", "trial.service"]));
    for name in ["vmlinuz", "initrd.img"] {
        fs::copy(system.join(name), folder.join(name)).unwrap();
    }
    let disk = folder.join("disk");
    done(Command::new("mkfs.ext4").args(["-q", "-d"]).args([&system, &disk]).arg("3G"));
    fs::remove_dir_all(&system).unwrap();
    disk
}

/// Without CMPXCHG16B. Debian 13's kernel died once in `kmalloc`, emulated by QEMU 7.2 with counted
/// instructions: a double fault shortly after that instruction, with the low half of a pointer in EFLAGS.
/// That the instruction was the cause is not proven; the kernel has another way that every processor can do,
/// and runs without a fault were seen with it.
const CPU: &str = "qemu64,-cx16,enforce";
/// The accelerators of the machine in order. A KVM that lacks what the processor model has, as some nested
/// ones do, ends at once because of `enforce`.
const ACCELERATORS: [&[&str]; 2] = [&["kvm"], &["tcg", "-icount", "shift=1,sleep=on"]];

/// Runs the machine to its end; what it says at its two serial ports.
fn run(disk: &Path, folder: &Path) -> (String, String) {
    let (console, steps) = (folder.join("console"), folder.join("steps"));
    let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\r', "");
    let is_run = |accelerator: &&[&str]| {
        let mut qemu = Command::new("timeout");
        qemu.args([SECONDS, "qemu-system-x86_64", "-cpu", CPU, "-smp", "1", "-m", "1536"]);
        qemu.arg("-accel").args(*accelerator).args(["-display", "none", "-monitor", "none", "-nic", "none"]);
        qemu.args(["-append", "root=/dev/vda rw console=ttyS0 panic=-1 quiet", "-kernel"]);
        qemu.arg(folder.join("vmlinuz")).arg("-initrd").arg(folder.join("initrd.img"));
        qemu.arg("-drive").arg(format!("if=virtio,format=raw,file={}", disk.display()));
        for port in [&console, &steps] {
            qemu.arg("-serial").arg(format!("file:{}", port.display()));
        }
        qemu.status().unwrap().success()
    };
    assert!(ACCELERATORS.iter().any(is_run), "the machine did not end\n{}\n{}", read(&steps), read(&console));
    (read(&console), read(&steps))
}

fn boots(suite: &str) {
    for program in ["debootstrap", "qemu-system-x86_64", "mkfs.ext4"] {
        if Command::new(program).arg("--version").output().is_err() {
            return eprintln!("{program} is not here; `cargo xtask test --long systems` installs it");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(package) = built(folder.path()) else {
        return eprintln!("the programs are not built; `cargo xtask test --long` builds them");
    };
    let disk = disk(suite, &package, folder.path());
    let (console, steps) = run(&disk, folder.path());
    println!("{suite}\n{steps}");
    let failed = steps.lines().filter(|line| line.starts_with("FAIL")).count();
    assert!(failed == 0 && steps.ends_with("END\n"), "{suite}: {failed} steps failed\n{steps}\n{console}");
}

#[test]
fn long_the_service_lives_in_a_machine_with_debian_12() {
    boots("bookworm");
}

#[test]
fn long_the_service_lives_in_a_machine_with_debian_13() {
    boots("trixie");
}
