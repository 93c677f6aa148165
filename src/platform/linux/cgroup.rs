//! The control groups (v1 and v2) of this process, which hold the limits of containers and
//! services.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A control group: a directory of files. The version determines their names.
pub struct Group {
    /// The directory of the group's files.
    pub directory: PathBuf,
    /// Whether it is of version 2, in which one hierarchy has all controllers.
    pub unified: bool,
}

impl Group {
    /// Reads one of the group's files.
    pub fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(file)).ok()
    }

    /// Reads a file that holds one number. Returns `None` if the file says `max`, which means no
    /// limit.
    pub fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.trim().parse().ok()
    }
}

/// Returns all groups that limit this process for `controller`: its group and the parents, of both
/// versions. `root` is `/` except in tests.
///
/// In a container, the process's group may be the root of the mount, with its path on the host. So
/// directories that do not exist are skipped, and the mount itself is always included.
pub fn groups(root: &Path, controller: &str) -> Vec<Group> {
    let mount = root.join("sys/fs/cgroup");
    let list = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut groups = Vec::new();
    for line in list.lines() {
        // hierarchy:controllers:path, with hierarchy 0 and no controllers for version 2.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let unified = names.is_empty();
        let mounts = match unified {
            true => vec![mount.clone(), mount.join("unified")],
            false if names.split(',').any(|name| name == controller) => {
                vec![mount.join(controller)]
            }
            false => continue,
        };
        for mount in mounts {
            for ancestor in Path::new(path.trim_start_matches('/')).ancestors() {
                let directory = mount.join(ancestor);
                if directory.is_dir() {
                    groups.push(Group { directory, unified });
                }
            }
        }
    }
    groups
}
