//! Reads the memory limits of a process's control group and of all its parents (cgroup v1 and v2).
//!
//! Page cache does not count as used, because the kernel drops it before it kills a process. Pages of tmpfs
//! do count.

use plimsoll_base::Bytes;

use super::fields;

/// Groups above one process that are looked at.
const MOST: usize = 64;

/// The least that is no limit: 2^62, where v1 writes 2^63 less a page.
const NO_LIMIT: Bytes = Bytes::new(1 << 62);

/// Memory limit of a control group, and the memory that counts against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLimit {
    /// The group's folder, from the root of the tree on.
    pub group: String,
    pub limit: Bytes,
    /// Without page cache.
    pub used: Bytes,
}

impl CgroupLimit {
    pub fn room(&self) -> Bytes {
        self.limit.saturating_sub(self.used)
    }
}

/// File names of one version of the cgroup interface.
#[derive(Clone, Copy)]
struct CgroupVersion {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// The keys of page cache in `memory.stat`, children included. Weights that are mapped and in use are
    /// active.
    cache: [&'static str; 2],
}

const V2: CgroupVersion = CgroupVersion {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    cache: ["inactive_file", "active_file"],
};
const V1: CgroupVersion = CgroupVersion {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};

/// Reads the limits of the groups that `/proc/self/cgroup` names and of every group above them; `read` reads
/// a file of the tree.
pub fn limits(own_groups: &str, mut read: impl FnMut(&str) -> Option<String>) -> Vec<CgroupLimit> {
    let mut found = Vec::new();
    for (version, path) in fields::lines(own_groups).filter_map(memory_group).take(MOST) {
        // A limit binds all groups below it, so the path is walked to the root.
        for group in upwards(version.mount, path) {
            found.extend(version.limit_of(&group, &mut read));
        }
    }
    found
}

/// `0::/user.slice` or `4:memory:/docker/1`.
fn memory_group(line: &str) -> Option<(CgroupVersion, &str)> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    match controllers {
        // Version 2 has one line without controllers; on hybrid systems both lines exist.
        "" => Some((V2, path)),
        _ if controllers.split(',').any(|name| name == "memory") => Some((V1, path)),
        _ => None,
    }
}

/// The group's folder and those above it, up to the mount; a path that would climb out of it has none.
fn upwards(mount: &str, path: &str) -> Vec<String> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    // The path is read from a file, and a captured tree may be hostile.
    if names.contains(&"..") || names.len() > MOST {
        return Vec::new();
    }
    let folder = |depth: usize| {
        let names = names[..depth].iter().copied();
        [mount].into_iter().chain(names).collect::<Vec<_>>().join("/")
    };
    (0..=names.len()).rev().map(folder).collect()
}

impl CgroupVersion {
    fn limit_of(self, group: &str, read: &mut impl FnMut(&str) -> Option<String>) -> Option<CgroupLimit> {
        let mut number =
            |name: &str| Some(Bytes::new(read(&format!("{group}/{name}"))?.trim().parse().ok()?));
        // `max`, or in v1 a number beyond every machine (PAGE_COUNTER_MAX), is no limit.
        let limit = number(self.limit).filter(|limit| *limit < NO_LIMIT)?;
        let used = number(self.usage)?;
        let stat = read(&format!("{group}/memory.stat")).unwrap_or_default();
        let cache: Bytes = self.cache.iter().filter_map(|key| stat_value(&stat, key)).sum();
        Some(CgroupLimit { group: group.to_owned(), limit, used: used.saturating_sub(cache) })
    }
}

/// A value of `memory.stat`.
pub fn stat_value(stat: &str, key: &str) -> Option<Bytes> {
    let value = fields::lines(stat).find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    value.trim().parse().ok().map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits_of(own: &str, files: &[(&str, &str)]) -> Vec<CgroupLimit> {
        limits(own, |path| {
            let file = files.iter().find(|(name, _)| *name == path)?;
            Some(file.1.to_owned())
        })
    }

    #[test]
    fn a_limit_above_counts_and_its_page_cache_is_room() {
        let found = limits_of(
            "0::/pod/app\n",
            &[
                ("sys/fs/cgroup/pod/app/memory.max", "max\n"),
                ("sys/fs/cgroup/pod/memory.max", "2147483648\n"),
                ("sys/fs/cgroup/pod/memory.current", "1610612736\n"),
                (
                    "sys/fs/cgroup/pod/memory.stat",
                    "anon 1\nfile 1\ninactive_file 268435456\nactive_file 268435456\n",
                ),
            ],
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].group, "sys/fs/cgroup/pod");
        assert_eq!(found[0].room(), Bytes::gib(1));
    }

    #[test]
    fn version_one_is_read_too() {
        let found = limits_of(
            "5:cpu,cpuacct:/x\n4:memory:/x\n",
            &[
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n"),
                ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "0\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n"),
            ],
        );
        let limits: Vec<Bytes> = found.iter().map(|found| found.limit).collect();
        assert_eq!(limits, [Bytes::gib(1)]);
    }

    #[test]
    fn a_path_out_of_the_tree_is_not_followed() {
        assert_eq!(upwards("sys/fs/cgroup", "/../../etc"), Vec::<String>::new());
        assert_eq!(upwards("m", "/a//b/"), ["m/a/b", "m/a", "m"]);
    }
}
