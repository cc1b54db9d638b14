//! Writes the systemd unit that `plimsoll serve --print-unit` prints.
//!
//! The unit files of the packages are the templates. Only the program, its configuration and, for a user, its
//! folder differ.

use std::env::{current_dir, current_exe, split_paths, var, var_os};
use std::io;
use std::path::{Path, PathBuf, absolute};

use plimsoll_config::{Configuration, ConfiguredModel, LONGEST_CONFIGURATION, Launch};
use plimsoll_reclaim::{UnitError, program_for_root, quoted};

use super::reach::{self, PATH, Reader};

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

/// A unit, and what will not work as it did in the shell that asked for it.
#[derive(Debug)]
pub(super) struct PrintedUnit {
    pub(super) text: String,
    pub(super) warnings: Vec<String>,
}

/// The unit for this installation, with where to put it as its first line.
pub(super) fn unit(config: Option<&Path>, of_user: bool) -> Result<PrintedUnit, PrintUnitError> {
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
    let word_of_config = config.as_deref().map(word).transpose()?;
    // Only packages bring the man page, without which systemd-analyze does not verify the unit.
    let template: String = template.split_inclusive('\n').filter(|line| !line.starts_with(MANUAL)).collect();
    let mut text = replaced(&template, &program, word_of_config.as_deref());
    // Relative paths in a configuration start where the server does; the service of the machine has its own
    // folder.
    if of_user && config.is_some() {
        let folder = format!("WorkingDirectory={}\n{START}", folder(&current_dir()?)?);
        text = text.replacen(START, &folder, 1);
    }
    // Where the service of a user starts.
    let start = match (of_user, &config) {
        (false, _) => None,
        (true, Some(_)) => current_dir().ok(),
        (true, None) => var_os("HOME").map(PathBuf::from),
    };
    let config = config.or_else(|| usual(of_user));
    let mut warnings = config.as_deref().map_or_else(Vec::new, |config| warnings(config, start.as_deref()));
    let roster = config.as_deref().and_then(read);
    let home = Path::new(reach::HOME);
    warnings.extend(roster.and_then(|roster| reach::without_engine(&roster, of_user, home)));
    let boot = if of_user { BOOT } else { "" };
    Ok(PrintedUnit { text: format!("# {place}\n{boot}{text}"), warnings })
}

/// The configuration that the template names.
fn usual(of_user: bool) -> Option<PathBuf> {
    let folder = if of_user {
        match var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty()) {
            Some(folder) => folder.into(),
            None => PathBuf::from(var_os("HOME")?).join(".config"),
        }
    } else {
        PathBuf::from("/etc")
    };
    Some(folder.join("plimsoll/plimsoll.toml"))
}

/// Paths that the service will not find.
///
/// `start` is the folder in which the service of a user starts; that of the machine has its own.
fn warnings(config: &Path, start: Option<&Path>) -> Vec<String> {
    let name = config.display();
    let text = match plimsoll_file::read_text(config, LONGEST_CONFIGURATION) {
        Ok(text) => text,
        Err(error) => return vec![format!("the service will not start: cannot read {name}: {error}")],
    };
    let roster = match plimsoll_config::parse_each(&config.to_string_lossy(), &text, &|name| var(name).ok()) {
        Ok(roster) => roster,
        Err(error) => return vec![format!("the service will not start: {error}")],
    };
    let refused = roster.refused.iter();
    let refused = refused.map(|model| format!("model `{}` will not be served: {}", model.name, model.error));
    let models = roster.models.iter().flat_map(|model| {
        model.launch.paths().map(|path| (format!("model `{}`", model.name), path.to_owned()))
    });
    let serve = &roster.serve;
    let is_permitted = serve.open || !serve.api_keys.is_empty() || !serve.api_key_files.is_empty();
    let exposed = serve.listen.iter().find(|address| !address.ip().is_loopback() && !is_permitted);
    let exposed = exposed.map(|address| {
        format!(
            "the service will not start: the address {address} can be reached from other machines, and no API key is set"
        )
    });
    let paths = [("the configuration".to_owned(), config.to_string_lossy().into_owned())];
    let engine = serve.engine.iter().flatten().take(1).filter(|program| program.contains('/'));
    let engine = engine.map(|program| ("`command` under [engine]".to_owned(), program.clone()));
    let logs = serve.log_file.as_deref().and_then(Path::parent).filter(|folder| *folder != Path::new(""));
    let logs =
        logs.map(|folder| ("the folder of `log-file`".to_owned(), folder.to_string_lossy().into_owned()));
    let reader = Reader::of_service();
    let has_engine = reach::has_engine(&roster, start.is_some(), Path::new(reach::HOME));
    let reported = paths.into_iter().chain(models).chain(engine).chain(logs).filter_map(|(of, path)| {
        // The unit of a user has no PrivateTmp, and starts in this folder.
        let why = match () {
            () if start.is_some_and(|start| !start.join(&path).exists()) => "not there",
            () if start.is_some() => return None,
            () if !path.starts_with('/') => {
                "a relative path, which the service resolves in /var/lib/plimsoll"
            }
            () if path.starts_with("/tmp/") || path.starts_with("/var/tmp/") => {
                "hidden from the service by PrivateTmp=yes; move it elsewhere"
            }
            () => return reader.reported(&of, Path::new(&path)),
        };
        Some(format!("{of}: {path} is {why}"))
    });
    exposed
        .into_iter()
        .chain(refused)
        .chain(reported)
        .chain(roster.models.iter().filter_map(|model| program_out_of_reach(model, has_engine)))
        .collect()
}

/// The configuration, where it can be read.
fn read(config: &Path) -> Option<Configuration> {
    let text = plimsoll_file::read_text(config, LONGEST_CONFIGURATION).ok()?;
    plimsoll_config::parse_each(&config.to_string_lossy(), &text, &|name| var(name).ok()).ok()
}

/// A model whose program a shell finds, and the service does not.
fn program_out_of_reach(model: &ConfiguredModel, has_engine: bool) -> Option<String> {
    // It would be on the PATH of this shell alone, and is found elsewhere.
    if model.launch.names_no_engine() && has_engine {
        return None;
    }
    let program = match &model.launch {
        Launch::Command { argv, .. } => argv.first()?,
        Launch::LlamaServer { program: Some(program), .. } => program.first()?,
        Launch::LlamaServer { program: None, .. } => "llama-server",
    };
    let is_in = |folder: &Path| folder.join(program).is_file();
    if program.contains('/') || PATH.iter().any(|folder| is_in(Path::new(folder))) {
        return None;
    }
    let found = var_os("PATH").and_then(|path| split_paths(&path).find(|folder| is_in(folder)))?;
    let name = &model.name;
    let path = found.join(program);
    let path = path.display();
    Some(format!(
        "model `{name}`: the service will not find `{program}`, because {path} is not on its PATH; write the full path"
    ))
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
    use std::fs;

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
        let unit = unit(Some(Path::new("/srv/a b%n\nExecStartPre=/bin/evil.toml")), true).unwrap().text;
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

    #[test]
    fn paths_that_the_service_will_not_find_are_told() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let config = place.path().join("p.toml");
        let here = Some(place.path());
        assert!(warnings(&config, here)[0].contains("cannot read /tmp/"));
        let text = "[models.a]\nmodel = 'models/a.gguf'\n[models.b]\nmodel = '/var/tmp/b.gguf'\n[models.c]\nmodel = '/srv/c.gguf'\n";
        fs::write(&config, text).unwrap();
        let reported = warnings(&config, here);
        assert!(
            reported.len() == 3 && reported.iter().all(|line| line.ends_with(" is not there")),
            "{reported:?}"
        );
        fs::create_dir(place.path().join("models")).unwrap();
        fs::write(place.path().join("models/a.gguf"), "").unwrap();
        assert_eq!(warnings(&config, here).len(), 2);
        let reported = warnings(&config, None);
        assert_eq!(reported.len(), 3, "{reported:?}");
        assert!(reported[0].starts_with("the configuration: /tmp/") && reported[0].contains("PrivateTmp"));
        assert!(reported[1].starts_with("model `a`: models/a.gguf is a relative path"));
        assert!(reported[2].starts_with("model `b`: /var/tmp/b.gguf is hidden"));
        // Cargo is on the PATH of a test, and not where a service looks.
        fs::write(&config, "[models.a]\ncmd = 'cargo ${PORT}'\n[models.b]\ncmd = 'sh ${PORT}'\n[models.c]\ncmd = 'no-such ${PORT}'\n").unwrap();
        let reported = warnings(&config, here);
        let is_elsewhere = !PATH.iter().any(|folder| Path::new(folder).join("cargo").is_file());
        assert_eq!(reported.len(), usize::from(is_elsewhere), "{reported:?}");
        assert!(
            reported
                .iter()
                .all(|line| line.starts_with("model `a`: the service will not find `cargo`, because /")),
            "{reported:?}"
        );
        let open = "listen = '0.0.0.0:1'\n[models.a]\ncmd = 'sh ${PORT}'\n";
        fs::write(&config, format!("[serve]\n{open}")).unwrap();
        assert!(warnings(&config, here)[0].contains("will not start: the address 0.0.0.0:1 can be reached"));
        fs::write(&config, format!("[serve]\napi-keys = ['k']\n{open}")).unwrap();
        assert_eq!(warnings(&config, here), Vec::<String>::new());
        fs::write(&config, "mdel = 1").unwrap();
        assert!(warnings(&config, here)[0].starts_with("the service will not start: "));
    }
}
