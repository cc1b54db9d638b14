//! Confines engines: another user, no new privileges, no core dumps, and a private /tmp.
//!
//! Only a change of user must succeed. Any other step that the system refuses is logged, and the engine runs
//! without it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use plimsoll_base::Bytes;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_bind_recursive, mount_change};
use rustix::process::{Gid, Resource, Rlimit, Uid, geteuid, setrlimit};
use rustix::thread::{
    UnshareFlags, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::own_command::own_command;

/// Folders for short-lived files, by the FHS.
const TMP: [&str; 2] = ["/tmp", "/var/tmp"];
/// The pipes of NVIDIA's MPS daemon, where its clients look for them.
const MPS: &str = "/tmp/nvidia-mps";

/// A user without whose rights an engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineUser {
    pub uid: u32,
    gid: u32,
    groups: Vec<u32>,
    pub name: String,
    pub home: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineUserError {
    #[error(
        "engine-user = {0}: only root can start engines as another user; start the server as root, or omit \
        engine-user"
    )]
    NotRoot(String),
    #[error("engine-user = {0}: there is no such user")]
    Unknown(String),
    #[error("engine-user = {user}: cannot run {program} ({error})")]
    Ask { user: String, program: &'static str, error: io::Error },
}

impl EngineUser {
    /// Looks a user up by name or number.
    pub fn find(user: &str) -> Result<Self, EngineUserError> {
        let unknown = || EngineUserError::Unknown(user.to_owned());
        if !geteuid().is_root() {
            return Err(EngineUserError::NotRoot(user.to_owned()));
        }
        // The system's own programs know users of every kind (files, LDAP, systemd).
        let ask = |program, arguments: &[&str]| {
            let output = own_command(program).and_then(|mut command| command.args(arguments).output());
            let output =
                output.map_err(|error| EngineUserError::Ask { user: user.to_owned(), program, error })?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let entry = ask("getent", &["passwd", "--", user])?;
        // name:password:uid:gid:comment:home:shell (passwd(5)).
        let fields: Vec<&str> = entry.trim_end().split(':').collect();
        let [name, _, uid, gid, _, home, _] = fields[..] else {
            return Err(unknown());
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| unknown());
        let groups = ask("id", &["-G", "--", name])?;
        Ok(Self {
            uid: number(uid)?,
            gid: number(gid)?,
            groups: groups.split_whitespace().map(number).collect::<Result<_, _>>()?,
            name: name.to_owned(),
            home: PathBuf::from(home),
        })
    }

    /// Returns whether the user may read a file: the kernel decides that, for a process of this user.
    pub fn can_read(&self, path: &Path) -> io::Result<bool> {
        let requested = Command::new(super::PLIMSOLL)
            .args(["exec-child", "--parent", &std::process::id().to_string()])
            .args(["--user", &self.numbers().to_string(), "--", "/bin/sh", "-c", "[ -r \"$1\" ]", "sh"])
            .arg(path)
            .output()?;
        Ok(requested.status.success())
    }

    fn numbers(&self) -> UserNumbers {
        UserNumbers { uid: self.uid, gid: self.gid, groups: self.groups.clone() }
    }

    /// Gives a file or folder to the user.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))
    }
}

/// Numbers of a user: `UID:GID:GROUP,GROUP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNumbers {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl std::fmt::Display for UserNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        write!(f, "{}:{}:{}", self.uid, self.gid, groups.join(","))
    }
}

impl FromStr for UserNumbers {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut fields = text.split(':');
        let mut field = || fields.next().unwrap_or_default();
        let (uid, gid, groups) = (field().parse()?, field().parse()?, field());
        let groups = groups.split(',').filter(|group| !group.is_empty());
        Ok(Self { uid, gid, groups: groups.map(str::parse).collect::<Result<_, _>>()? })
    }
}

/// Restrictions of one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    pub user: Option<EngineUser>,
    /// Programs with the set-user-ID bit get no other rights; sudo and rootless containers need them.
    pub no_new_privileges: bool,
    /// A folder of the engine's own, which holds its `tmp`.
    pub folder: Option<PathBuf>,
    /// The kernel ends the engine when its host memory passes this, where the daemon's cgroup is delegated to
    /// it.
    pub host_memory: Option<Bytes>,
}

impl Confinement {
    /// The arguments of the trampoline.
    pub fn arguments(&self) -> Vec<OsString> {
        let user = self.user.iter();
        let user = user.flat_map(|user| ["--user".into(), user.numbers().to_string().into()]);
        let folder = self.folder.iter();
        let folder = folder.flat_map(|folder| ["--folder".into(), folder.clone().into_os_string()]);
        let bit = self.no_new_privileges.then(|| "--no-new-privileges".into());
        user.chain(folder).chain(bit).collect()
    }
}

/// Makes `FOLDER/tmp` the /tmp of this process and of the program that it becomes; `command` is that program.
///
/// Returns false where the folder must do as TMPDIR, because the command or its environment names a file
/// below /tmp, or MPS has its pipes there.
pub fn enter_private_tmp<'a>(
    folder: &Path,
    command: impl IntoIterator<Item = &'a OsStr>,
) -> io::Result<bool> {
    let own = folder.to_string_lossy().into_owned();
    let lies_there = |path: PathBuf| TMP.iter().any(|tmp| path.starts_with(tmp)) && !path.starts_with(folder);
    let names_tmp = |word: &OsStr| {
        // By its own words, or by a link.
        word.to_string_lossy().replace(&own, "").contains("/tmp/")
            || fs::canonicalize(word).is_ok_and(lies_there)
    };
    if command.into_iter().any(names_tmp) || Path::new(MPS).exists() {
        return Ok(false);
    }
    #[expect(deprecated, reason = "unsound only with CLONE_FILES, which shares file descriptors")]
    rustix::thread::unshare(UnshareFlags::NEWNS)?;
    // File systems that are mounted later still appear here; what is mounted here stays here.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let tmp = folder.join("tmp");
    for place in TMP {
        // The folder itself, with the socket, keeps its path.
        if let Ok(below) = folder.strip_prefix(place) {
            let inner = tmp.join(below);
            fs::create_dir_all(&inner)?;
            mount_bind(folder, &inner)?;
        }
    }
    for place in TMP {
        mount_bind_recursive(&tmp, place)?;
    }
    Ok(true)
}

/// Leaves no core dump: it would hold prompts. A handler that takes dumps by pipe is not bound by it.
pub fn forbid_core_dumps() -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    Ok(setrlimit(Resource::Core, none)?)
}

/// Sets the no_new_privs bit of this process and of the program that it becomes.
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// Becomes another user, for good. For a process of one thread only.
pub fn become_user(user: &UserNumbers) -> io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    // Groups first: the right to change them goes with the user.
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_user_read_back_and_nonsense_is_refused() {
        let user = UserNumbers { uid: 65534, gid: 7, groups: vec![7, 44] };
        assert_eq!(user.to_string().parse(), Ok(user));
        assert!("1:2:".parse::<UserNumbers>().unwrap().groups.is_empty());
        for text in ["", "1", "1:", "x:1:", "-1:1:", "1:1:a", "4294967296:1:"] {
            assert!(text.parse::<UserNumbers>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_user_is_looked_up_by_root_only_and_must_exist() {
        let found = EngineUser::find("nobody");
        if geteuid().is_root() {
            assert_eq!(found.unwrap().uid, 65534)
        } else {
            assert!(matches!(found, Err(EngineUserError::NotRoot(_))))
        }
        if geteuid().is_root() {
            for user in ["no-such-user", "", "-h", "nobody:x"] {
                let error = EngineUser::find(user).unwrap_err();
                assert!(matches!(error, EngineUserError::Unknown(_)), "{user}: {error}");
            }
        }
    }

    #[test]
    fn a_command_that_names_a_file_below_tmp_keeps_the_machines() {
        let folder = Path::new("/tmp/plimsoll-engine-1-0/1");
        let elsewhere = tempfile::tempdir_in("/var").or_else(|_| tempfile::tempdir()).unwrap();
        let (model, link) = (tempfile::NamedTempFile::new_in("/tmp").unwrap(), elsewhere.path().join("link"));
        std::os::unix::fs::symlink(model.path(), &link).unwrap();
        let link = link.to_str().unwrap();
        for word in ["/tmp/model.gguf", "--model=/tmp/m.gguf", "/var/tmp/m", link] {
            assert!(!enter_private_tmp(folder, [OsStr::new(word)]).unwrap(), "{word}");
        }
    }
}
