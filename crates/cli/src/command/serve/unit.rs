//! Writes the systemd unit that `plimsoll serve --print-unit` prints.
//!
//! The unit files of the packages are the templates. Only the program, its configuration and, for a user, its
//! folder differ.
//!
//! DECISION: the unit is printed without a look at the configuration. `serve --check`, run as the service's
//! user, finds what that user cannot read or run; another check here would guess its rights.

use std::env::{current_dir, current_exe};
use std::io;
use std::path::{Path, PathBuf, absolute};

use plimsoll_reclaim::{UnitError, program_for_root, quoted};

/// The units that the packages install, with the program in `/usr/bin`.
const SYSTEM: &str = include_str!("../../../units/system.service");
const MANUAL: &str = "Documentation=man:";
const USER: &str = include_str!("../../../units/user.service");
const START: &str = "ExecStart=";

/// How a service of a user starts with the machine.
const BOOT: &str = "# systemctl --user enable --now plimsoll starts it with your session; loginctl enable-linger, at boot and without one.\n";

#[derive(Debug, thiserror::Error)]
pub(super) enum PrintUnitError {
    #[error("{0}\nhint: --print-unit --user prints a unit for your own systemd, which needs no root")]
    Program(#[source] UnitError),
    #[error("cannot find the path of this program or of its configuration: {0}")]
    Find(#[from] io::Error),
    #[error("the path {} is not valid UTF-8, which a systemd unit requires", .0.display())]
    NotText(PathBuf),
    #[error("the path {} cannot be written in a unit: it has a line break, or ends in a blank or a backslash", .0.display())]
    NoFolder(PathBuf),
}

/// The unit for this installation, with where to put it as its first line.
pub(super) fn unit(config: Option<&Path>, of_user: bool) -> Result<String, PrintUnitError> {
    let (template, place) = if of_user {
        (USER, "~/.config/systemd/user/plimsoll.service")
    } else {
        (SYSTEM, "/etc/systemd/system/plimsoll.service")
    };
    let program = if of_user {
        word(&current_exe()?.canonicalize()?)?
    } else {
        program_for_root().map_err(PrintUnitError::Program)?
    };
    let config = config.map(absolute).transpose()?;
    let config = config.as_deref().map(word).transpose()?;
    // Only packages bring the man page, without which systemd-analyze does not verify the unit.
    let template: String = template.split_inclusive('\n').filter(|line| !line.starts_with(MANUAL)).collect();
    let mut text = replaced(&template, &program, config.as_deref());
    // Relative paths in a configuration start where the server does; the service of the machine has its own
    // folder.
    if of_user && config.is_some() {
        let folder = format!("WorkingDirectory={}\n{START}", folder(&current_dir()?)?);
        text = text.replacen(START, &folder, 1);
    }
    let boot = if of_user { BOOT } else { "" };
    Ok(format!("# {place}\n{boot}{text}"))
}

/// A folder as `WorkingDirectory=` takes it: without quotation marks.
fn folder(path: &Path) -> Result<String, PrintUnitError> {
    let text = path.to_str().ok_or_else(|| PrintUnitError::NotText(path.to_owned()))?;
    let ends_badly = text.ends_with(|c: char| c.is_whitespace() || c == '\\');
    if ends_badly || text.contains(char::is_control) {
        Err(PrintUnitError::NoFolder(path.to_owned()))
    } else {
        Ok(text.replace('%', "%%"))
    }
}

fn word(path: &Path) -> Result<String, PrintUnitError> {
    path.to_str().map(quoted).ok_or_else(|| PrintUnitError::NotText(path.to_owned()))
}

/// The template with another program, and another configuration where one is named.
fn replaced(template: &str, program: &str, config: Option<&str>) -> String {
    let line = |line: &str| match line.strip_prefix(START).and_then(|command| command.rsplit_once(' ')) {
        Some((_, usual)) => format!("{START}{program} serve {}\n", config.unwrap_or(usual)),
        None => format!("{line}\n"),
    };
    template.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_name_the_installation_that_printed_them_and_differ_in_nothing_else() {
        for template in [SYSTEM, USER] {
            let usual = template.lines().find_map(|line| line.strip_prefix(START)).unwrap();
            let config = usual.rsplit(' ').next().unwrap();
            assert_eq!(replaced(template, "/usr/bin/plimsoll", None), template);
            let own = replaced(template, "/opt/p", Some("/srv/models.ini"));
            assert!(own.contains("\nExecStart=/opt/p serve /srv/models.ini\n"), "{own}");
            assert_eq!(
                own.replace("/opt/p serve /srv/models.ini", &format!("/usr/bin/plimsoll serve {config}")),
                template
            );
        }
    }

    #[test]
    fn a_configuration_says_nothing_to_systemd_but_itself() {
        let unit = unit(Some(Path::new("/srv/a b%n\nExecStartPre=/bin/evil.toml")), true).unwrap();
        assert!(unit.contains("serve \"/srv/a b%%n\\nExecStartPre=/bin/evil.toml\"\n"), "{unit}");
        assert_eq!(unit.lines().filter(|line| line.starts_with("ExecStartPre")).count(), 0);
        assert!(USER.contains(MANUAL) && !unit.contains(MANUAL), "{unit}");
    }

    #[test]
    fn a_folder_says_nothing_to_systemd_but_itself() {
        assert_eq!(folder(Path::new("/home/a b/100%")).unwrap(), "/home/a b/100%%");
        for path in ["/a\nExecStartPre=/bin/evil", "/a ", "/a\\", "/a\t"] {
            assert!(folder(Path::new(path)).is_err(), "{path:?}");
        }
    }
}
