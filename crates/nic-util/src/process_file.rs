//! Files that each process of a run writes: the first process gets the name, others add their numbers.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Creates the file of this process: `path`, or, if another process has that, `path` with the number of this process as its
/// extension. Only the user may read it.
///
/// # Errors
/// The system's, with the name.
pub fn create(path: &Path) -> Result<(PathBuf, File), (PathBuf, io::Error)> {
    match new_file(path) {
        Ok(file) => Ok((path.to_owned(), file)),
        Err(Errno::EXIST) => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}", std::process::id()));
            let own = PathBuf::from(name);
            // A file of this name belongs to an earlier process of this number.
            let _ = std::fs::remove_file(&own);
            let file = new_file(&own).map_err(|why| (own.clone(), why.into()))?;
            Ok((own, file))
        }
        Err(why) => Err((path.to_owned(), why.into())),
    }
}

fn new_file(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_file_has_the_number_of_the_process() {
        let folder = std::env::temp_dir().join(format!("nicety-process-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("a");
        let names: Vec<_> = (0..3).map(|_| create(&path).expect("a file").0).collect();
        let own = folder.join(format!("a.{}", std::process::id()));
        assert_eq!(names, [path, own.clone(), own]);
        std::fs::remove_dir_all(&folder).expect("the folder");
        assert!(create(&folder.join("b")).is_err_and(|(named, _)| named.ends_with("b")));
    }
}
