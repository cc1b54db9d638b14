//! Systemd units of the server, for `serve --print-unit`.
//!
//! The unit files of the packages are the templates. Only the program and its configuration differ.

use std::env::current_exe;
use std::io;
use std::path::{Path, PathBuf, absolute};

use plimsoll_reclaim::{UnitError, program_for_root, quoted};

/// The units that the packages install, with the program in `/usr/bin`.
const SYSTEM: &str = include_str!("../../../units/system.service");
const USER: &str = include_str!("../../../units/user.service");
const START: &str = "ExecStart=";

#[derive(Debug, thiserror::Error)]
pub(super) enum PrintUnitError {
    #[error("{0}\nhint: --print-unit --user prints a unit for your own systemd, which needs no root")]
    Program(#[source] UnitError),
    #[error("cannot find the path of this program or of its configuration: {0}")]
    Find(#[from] io::Error),
    #[error("the path {} is not text, which a unit has to be", .0.display())]
    NotText(PathBuf),
}

/// The unit for this installation, with where to put it as its first line.
pub(super) fn unit(config: Option<&Path>, of_user: bool) -> Result<String, PrintUnitError> {
    let (template, place) = match of_user {
        false => (SYSTEM, "/etc/systemd/system/plimsoll.service"),
        true => (USER, "~/.config/systemd/user/plimsoll.service"),
    };
    let program = match of_user {
        false => program_for_root().map_err(PrintUnitError::Program)?,
        true => word(&current_exe()?.canonicalize()?)?,
    };
    let config = config.map(|path| word(&absolute(path)?)).transpose()?;
    Ok(format!("# {place}\n{}", replaced(template, &program, config.as_deref())))
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
    }
}
