//! Checks that the user of a systemd service can reach each file and program that the configuration names.
//!
//! The check runs before the service starts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plimsoll_config::Configuration;
use plimsoll_engine::{
    program,
    program::{EngineHome, EngineProgram},
};

/// Home of the machine's service, as its unit sets it.
pub(super) const HOME: &str = "/var/lib/plimsoll";
/// User of the machine's service.
const USER: &str = "plimsoll";
/// Its groups beside that of its own name.
const GROUPS: [&str; 2] = ["video", "render"];

/// Folders in which systemd looks for programs, and those of a service (`systemd.exec(5)`, `PATH`).
pub(super) const PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The engine that the machine's service would find for flags alone.
fn engine_of_machine(home: &Path) -> Option<EngineProgram> {
    let folders = PATH.iter().map(|folder| Path::new(folder).join("llama-server"));
    let on_path = folders
        .filter(|path| path.is_file())
        .map(|path| EngineProgram { path, origin: program::EngineOrigin::SearchPath });
    on_path.chain(program::installed(&EngineHome::of_home(home))).next()
}

/// A warning that no engine runs the models that name none.
pub(super) fn without_engine(roster: &Configuration, of_user: bool, home: &Path) -> Option<String> {
    let needs = roster.models.iter().any(|model| model.launch.names_no_engine());
    if !needs || roster.serve.engine.is_some() {
        return None;
    }
    if of_user {
        return program::find(None).err().map(|missing| format!("no model will load: {missing}"));
    }
    let is_missing = engine_of_machine(home).is_none();
    is_missing.then(|| {
        let home = home.display();
        format!(
            "no model will load: no llama-server is on the service's PATH, and plimsoll has installed none for its home\n\
             hint: put a llama-server into /usr/local/bin, set `command` under [engine] to its full path, or run \
             `sudo -u {USER} env HOME={home} plimsoll engine install`"
        )
    })
}

/// True if an engine for flags alone is found without the search path of this shell.
pub(super) fn has_engine(roster: &Configuration, of_user: bool, home: &Path) -> bool {
    let installed = || EngineHome::from_environment().ok().and_then(|home| program::installed(&home));
    roster.serve.engine.is_some() || if of_user { installed() } else { engine_of_machine(home) }.is_some()
}

/// Numbers of a user that decide what it may read.
pub(super) struct Reader {
    uid: Option<u32>,
    groups: Vec<u32>,
}

impl Reader {
    /// The user of the machine's service; one that is not made yet has what everybody has.
    pub(super) fn of_service() -> Self {
        let table = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let (users, groups) = (table("/etc/passwd"), table("/etc/group"));
        let uid = number(&users, USER, 2);
        let own = number(&users, USER, 3);
        // `useradd` of the unit's comment gives it these groups.
        let others = GROUPS.iter().filter_map(|name| number(&groups, name, 2)).filter(|_| uid.is_some());
        Self { uid, groups: own.into_iter().chain(others).collect() }
    }

    /// The first place on the way to a file that this user cannot pass or read. Access lists are not looked
    /// at.
    pub(super) fn stopped_at(&self, path: &Path) -> Option<(PathBuf, u32)> {
        // A link's target is what is read.
        let path = path.canonicalize().ok()?;
        let mut folders: Vec<&Path> = path.ancestors().skip(1).collect();
        folders.reverse();
        let places = folders.into_iter().map(|folder| (folder, 1)).chain([(path.as_path(), 4)]);
        let mut stops = places.filter_map(|(place, right)| {
            let about = fs::metadata(place).ok()?;
            let bits = match () {
                () if Some(about.uid()) == self.uid => about.mode() >> 6,
                () if self.groups.contains(&about.gid()) => about.mode() >> 3,
                () => about.mode(),
            };
            (bits & right == 0).then(|| (place.to_owned(), about.mode() & 0o777))
        });
        stops.next()
    }

    /// A warning of a file that the service cannot read.
    pub(super) fn reported(&self, of: &str, path: &Path) -> Option<String> {
        let (place, mode) = self.stopped_at(path)?;
        let (path, place) = (path.display(), place.display());
        Some(format!(
            "{of}: the service's user `{USER}` cannot read {path}, because {place} has the mode {mode:04o}"
        ))
    }
}

/// A number in the line of `name` of passwd(5) or group(5).
fn number(table: &str, name: &str, field: usize) -> Option<u32> {
    let mut lines = table.lines().map(|line| line.split(':'));
    lines.find(|line| line.clone().next() == Some(name))?.nth(field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_read_by_its_owner_its_group_or_everybody_and_behind_open_folders_alone() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("m.gguf");
        fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let about = fs::metadata(&file).unwrap();
        let nobody = Reader { uid: None, groups: Vec::new() };
        let owner = Reader { uid: Some(about.uid()), groups: Vec::new() };
        let grouped = Reader { uid: Some(about.uid() + 1), groups: vec![about.gid()] };
        for (folder, mode, of_nobody, of_owner, of_group) in [
            (0o755, 0o644, true, true, true),
            (0o755, 0o640, false, true, true),
            (0o755, 0o600, false, true, false),
            (0o700, 0o644, false, true, false),
            (0o750, 0o604, false, true, false),
            (0o751, 0o604, true, true, false),
        ] {
            set(place.path(), folder);
            set(&file, mode);
            for (reader, reads) in [(&nobody, of_nobody), (&owner, of_owner), (&grouped, of_group)] {
                assert_eq!(reader.stopped_at(&file).is_none(), reads, "{folder:o} {mode:o}");
            }
        }
        set(place.path(), 0o700);
        let reported = nobody.reported("model `a`", &file).unwrap();
        assert!(
            reported.ends_with(&format!("because {} has the mode 0700", place.path().display())),
            "{reported}"
        );
        assert_eq!(nobody.reported("model `a`", Path::new("/no/such")), None);
        set(place.path(), 0o755);
    }

    #[test]
    fn a_service_without_an_engine_is_told_and_an_installed_one_is_found() {
        let home = tempfile::tempdir().unwrap();
        let text = "[models.a]\nmodel = '/a.gguf'\n";
        let roster = plimsoll_config::parse("a.toml", text, &|_| None).unwrap();
        if PATH.iter().all(|folder| !Path::new(folder).join("llama-server").is_file()) {
            let reported = without_engine(&roster, false, home.path()).unwrap();
            assert!(
                reported.starts_with("no model will load: no llama-server is on the service's PATH"),
                "{reported}"
            );
            assert!(!has_engine(&roster, false, home.path()));
        }
        let named = format!("[engine]\ncommand = '/bin/true'\n{text}");
        let named = plimsoll_config::parse("a.toml", &named, &|_| None).unwrap();
        assert_eq!(without_engine(&named, false, home.path()), None);
    }

    #[test]
    fn a_number_is_that_of_the_whole_name() {
        let table = "plimsollx:x:1:2:::\nplimsoll:x:998:997::/var/lib/plimsoll:/bin/false\nbad\n";
        assert_eq!((number(table, "plimsoll", 2), number(table, "plimsoll", 3)), (Some(998), Some(997)));
        assert_eq!((number(table, "bad", 2), number(table, "", 2)), (None, None));
    }
}
