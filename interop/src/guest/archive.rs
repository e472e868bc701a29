//! The two files that a guest boots from: an archive of its initial files, and the kernel without its compression.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xtask::workspace::run;

/// A file of an archive.
pub(crate) struct Entry {
    /// Without a leading slash.
    pub(crate) name: Vec<u8>,
    /// File type and permissions, as stat(2) gives them.
    pub(crate) mode: u32,
    /// The contents; for a symbolic link, its target.
    pub(crate) data: Vec<u8>,
}

impl Entry {
    /// A program, or a script with an interpreter line.
    pub(crate) fn program(name: &str, data: &[u8]) -> Self {
        Self { name: name.into(), mode: 0o100_755, data: data.to_vec() }
    }
}

/// Writes an archive as the kernel reads it (Documentation/driver-api/early-userspace/buffer-format.rst): "newc", all
/// files owned by root. Several archives may be concatenated.
pub(crate) fn write_archive(entries: &[Entry], to: &mut impl Write) -> Result<()> {
    for (inode, entry) in (1..).zip(entries) {
        write_entry(inode, entry, to)?;
    }
    let end = Entry { name: b"TRAILER!!!".to_vec(), mode: 0, data: Vec::new() };
    write_entry(0, &end, to)
}

fn write_entry(inode: u32, entry: &Entry, to: &mut impl Write) -> Result<()> {
    let len = u32::try_from(entry.data.len()).context("a file of 4 GiB")?;
    let name_len = entry.name.len() as u32 + 1;
    // Inode, mode, owner, group, links, time, length, device, device of a node, name with its zero, checksum.
    let fields = [inode, entry.mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
    let mut head = b"070701".to_vec();
    fields.iter().try_for_each(|field| write!(head, "{field:08x}"))?;
    head.extend_from_slice(&entry.name);
    head.push(0);
    head.resize(head.len().next_multiple_of(4), 0);
    to.write_all(&head)?;
    to.write_all(&entry.data)?;
    to.write_all(&[0; 3][..entry.data.len().next_multiple_of(4) - entry.data.len()])?;
    Ok(())
}

/// All files below a folder, in order.
pub(crate) fn entries_of(root: &Path) -> Result<Vec<Entry>> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
            let path = entry?.path();
            if path.symlink_metadata()?.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    // A folder precedes its contents.
    found.sort();
    found.iter().map(|path| entry_of(root, path)).collect()
}

fn entry_of(root: &Path, path: &Path) -> Result<Entry> {
    let about = path.symlink_metadata()?;
    let data = if about.is_symlink() {
        fs::read_link(path)?.as_os_str().as_bytes().to_vec()
    } else if about.is_file() {
        fs::read(path)?
    } else {
        Vec::new()
    };
    let name = path.strip_prefix(root)?.as_os_str().as_bytes().to_vec();
    Ok(Entry { name, mode: about.mode() & !0o022, data })
}

/// Extracts the ELF kernel of a bzImage if it is compressed in a known way (Documentation/arch/x86/boot.rst): a kernel
/// takes seconds to decompress itself on an emulated processor. Otherwise the bzImage is used as it is.
pub(crate) fn unwrap_kernel(image: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(image).with_context(|| format!("{}", image.display()))?;
    let word =
        |at: usize| bytes.get(at..at + 4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]) as usize);
    let (offset, len) = (word(0x248).context("a short kernel")?, word(0x24c).context("a short kernel")?);
    let setup = (usize::from(bytes[0x1f1]) + 1) * 512;
    let payload = bytes.get(setup + offset..).and_then(|rest| rest.get(..len)).unwrap_or_default();
    let (packed, unpacked) = (to.with_extension("xz"), to.with_extension("elf"));
    if payload.starts_with(b"\xfd7zXZ\0") {
        fs::write(&packed, payload)?;
        let out = fs::File::create(&unpacked)?;
        // The stream is followed by its length, which is no xz data.
        let status = Command::new("xz")
            .args(["--decompress", "--stdout", "--single-stream", "--quiet", "--quiet"])
            .arg(&packed)
            .stdout(out)
            .stderr(Stdio::null())
            .status();
        fs::remove_file(&packed)?;
        if status.is_ok() && fs::read(&unpacked)?.starts_with(b"\x7fELF") {
            fs::rename(&unpacked, to)?;
            return Ok(());
        }
        fs::remove_file(&unpacked)?;
    }
    fs::copy(image, to)?;
    Ok(())
}

/// Unpacks a Debian package into a folder.
pub(crate) fn unpack(package: &Path, to: &Path) -> Result<()> {
    ensure!(package.is_file(), "{} is missing", package.display());
    run(Command::new("dpkg").arg("-x").arg(package).arg(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_byte_by_byte() {
        let mut bytes = Vec::new();
        let entries = [Entry::program("init", b"#!/x\n")];
        write_archive(&entries, &mut bytes).expect("writes to memory succeed");
        assert!(bytes.starts_with(b"07070100000001000081ed"), "{}", String::from_utf8_lossy(&bytes));
        assert_eq!(&bytes[110..116], b"init\0\0", "the name, its zero, padding to four");
        assert_eq!(&bytes[116..124], b"#!/x\n\0\0\0");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(11).any(|name| name == b"TRAILER!!!\0"));
    }

    #[test]
    fn a_folder_stands_before_its_files() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("a")).expect("a folder");
        fs::write(root.path().join("a/b"), b"x").expect("a file");
        std::os::unix::fs::symlink("a/b", root.path().join("c")).expect("a link");
        let entries = entries_of(root.path()).expect("all readable");
        let names: Vec<_> = entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
        assert_eq!(names, ["a", "a/b", "c"]);
        assert_eq!((entries[1].data.as_slice(), entries[2].data.as_slice()), (&b"x"[..], &b"a/b"[..]));
        assert_eq!((entries[0].mode >> 12, entries[1].mode >> 12, entries[2].mode >> 12), (4, 8, 10));
    }
}
