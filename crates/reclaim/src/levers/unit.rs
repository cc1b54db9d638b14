//! Writes the systemd unit that runs one reclaim step as root.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Install path of [`unit()`].
pub const UNIT: &str = "/etc/systemd/system/plimsoll-reclaim@.service";
/// Write permission of others, and of a group (inode(7)).
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;

/// Reasons why no unit can name this program.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    #[error("cannot read the owner of {}: {error}; run plimsoll from its installed path", path.display())]
    Look { path: PathBuf, error: io::Error },
    #[error("a service must not run {}: users other than root can write to {}, and so replace it; install \
        plimsoll where only root can write, such as /usr/bin", program.display(), place.display())]
    Writable { program: PathBuf, place: PathBuf },
    #[error("the path {} is not valid UTF-8, so no unit can contain it", .0.display())]
    NotText(PathBuf),
}

/// A systemd template unit; each instance runs one step. It needs root but no capability, because root owns
/// the files.
pub fn unit() -> Result<String, UnitError> {
    Ok(unit_of(&program_for_root()?))
}

/// The path of this program as a word of a unit, if root alone may change what lies there.
pub fn program_for_root() -> Result<String, UnitError> {
    let look = |error| UnitError::Look { path: "/proc/self/exe".into(), error };
    program_of(&std::env::current_exe().map_err(look)?, 0)
}

/// The same for `program`, if `owner` alone may change what lies there.
fn program_of(program: &Path, owner: u32) -> Result<String, UnitError> {
    // DECISION: a unit runs whatever lies at the path that it names, as root. So a path that another user may
    // change is refused: the program or one of its folders belongs to another user, or others may write it.

    // After an upgrade the link of /proc ends in ` (deleted)`, and no file is there.
    let path = program.canonicalize();
    let path = path.map_err(|error| UnitError::Look { path: program.to_owned(), error })?;
    for place in path.ancestors() {
        let about = place.metadata().map_err(|error| UnitError::Look { path: place.to_owned(), error })?;
        let group = about.mode() & GROUP_WRITES != 0 && about.gid() != 0;
        if about.uid() != owner && about.uid() != 0 || about.mode() & OTHERS_WRITE != 0 || group {
            return Err(UnitError::Writable { program: path.clone(), place: place.to_owned() });
        }
    }
    path.to_str().map(quoted).ok_or_else(|| UnitError::NotText(path.clone()))
}

fn unit_of(program: &str) -> String {
    format!(
        "# {UNIT}\n\
         [Unit]\n\
         Description=Plimsoll reclaims memory: %i\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         ExecStart={program} reclaim-step %i\n\
         CapabilityBoundingSet=\n\
         NoNewPrivileges=yes\n\
         PrivateNetwork=yes\n\
         PrivateTmp=yes\n\
         ProtectHome=read-only\n\
         ProtectSystem=strict\n\
         RestrictAddressFamilies=none\n\
         SystemCallArchitectures=native\n\
         TimeoutStartSec=120\n"
    )
}

/// A word of a command line in a unit (systemd.service(5), "Command lines").
pub fn quoted(word: &str) -> String {
    if word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte)) {
        return word.to_owned();
    }
    let escaped: String = word
        .chars()
        .map(|letter| match letter {
            '%' => "%%".to_owned(),
            '$' => "$$".to_owned(),
            '"' | '\\' => format!("\\{letter}"),
            '\n' => "\\n".to_owned(),
            letter if letter.is_ascii_control() => format!("\\x{:02x}", u32::from(letter)),
            // U+0085 ends a line for some readers.
            letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
            letter => letter.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_another_user_may_change_is_no_program_for_root() {
        let owner = rustix::process::getuid().as_raw();
        // Below the test itself, because /tmp may be written by all.
        let target = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(target.parent().unwrap()).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let program = folder.path().join("plimsoll");
        fs::write(&program, "").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(&program, 0o755);
        match program_of(&program, owner) {
            Ok(word) => {
                let unit = unit_of(&word);
                assert!(unit.contains("/plimsoll reclaim-step %i\n"), "{unit}");
            }
            // A build folder that others may write.
            Err(error) => return assert!(matches!(error, UnitError::Writable { .. }), "{error}"),
        }
        for (path, loose, sound) in [(program.as_path(), 0o757, 0o755), (folder.path(), 0o777, 0o755)] {
            mode(path, loose);
            let error = program_of(&program, owner).unwrap_err().to_string();
            assert!(error.contains("users other than root can write to"), "{error}");
            mode(path, sound);
        }
        assert!(program_of(&program, owner).is_ok());
        assert!(owner == 0 || program_of(&program, 0).is_err(), "it belongs to another user than root");
        fs::remove_file(&program).unwrap();
        assert!(matches!(program_of(&program, owner), Err(UnitError::Look { .. })), "no file is left");
    }

    #[test]
    fn a_program_in_a_folder_of_all_users_is_refused() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let program = folder.path().join("plimsoll");
        fs::write(&program, "").unwrap();
        let owner = rustix::process::getuid().as_raw();
        assert!(matches!(program_of(&program, owner), Err(UnitError::Writable { .. })));
    }

    #[test]
    fn a_path_says_nothing_to_systemd_but_itself() {
        assert_eq!(quoted("/usr/bin/plimsoll"), "/usr/bin/plimsoll");
        assert_eq!(quoted("/opt/a b/50%/$HOME/\"x\\"), r#""/opt/a b/50%%/$$HOME/\"x\\""#);
        assert_eq!(quoted("/a\nExecStart=/b"), "\"/a\\nExecStart=/b\"");
        assert_eq!(quoted("a\r\t\u{c}\u{7f}\u{85}\u{9b}é"), r#""a\x0d\x09\x0c\x7f\u0085\u009bé""#);
    }
}
