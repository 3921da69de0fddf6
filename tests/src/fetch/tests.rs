//! Tests F1 to F3 with a small archive.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Makes an archive with its pinned checksum.
fn small_archive(dir: &Path) -> Archive {
    std::fs::write(dir.join("hello.txt"), "hello").unwrap();
    let file = dir.join("hello.tgz");
    let status = Command::new("tar")
        .arg("-czf")
        .arg(&file)
        .arg("-C")
        .arg(dir)
        .arg("hello.txt")
        .status()
        .unwrap();
    assert!(status.success());
    let bytes = std::fs::read(&file).unwrap();
    let sha: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Archive {
        name: "hello",
        file: "hello.tgz",
        sha256: sha.leak(),
        bytes: bytes.len() as u64,
        from: Registry::Npm("none@0"),
    }
}

fn copy_to(source: &Path) -> impl FnOnce(&Path) -> Result<()> {
    let source = source.join("hello.tgz");
    move |to: &Path| {
        std::fs::copy(&source, to.join("hello.tgz"))?;
        Ok(())
    }
}

#[test]
fn an_archive_is_unpacked_and_kept() {
    let (source, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = small_archive(source.path());
    let dir = ensure_with(cache.path(), &archive, copy_to(source.path())).unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("hello.txt")).unwrap(), "hello");
    let again = ensure_with(cache.path(), &archive, |_| bail!("must not be asked again"));
    assert_eq!(again.unwrap(), dir);
}

#[test]
fn a_tampered_archive_is_refused_and_leaves_nothing_installed() {
    let (source, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = small_archive(source.path());
    let tampered = |to: &Path| {
        let mut bytes = std::fs::read(source.path().join("hello.tgz"))?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        Ok(std::fs::write(to.join("hello.tgz"), bytes)?)
    };
    let error = ensure_with(cache.path(), &archive, tampered).unwrap_err();
    assert!(format!("{error:#}").contains(archive.sha256), "{error:#}");
    assert!(!cache.path().join("hello").exists());
    assert!(!cache.path().join("archives/hello.tgz").exists());
    // The next attempt, with the right bytes, succeeds.
    ensure_with(cache.path(), &archive, copy_to(source.path())).unwrap();
}

#[test]
fn a_tampered_archive_left_in_the_cache_is_fetched_anew() {
    let (source, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = small_archive(source.path());
    std::fs::create_dir(cache.path().join("archives")).unwrap();
    std::fs::write(cache.path().join("archives/hello.tgz"), "not an archive").unwrap();
    let dir = ensure_with(cache.path(), &archive, copy_to(source.path())).unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("hello.txt")).unwrap(), "hello");
}

#[test]
fn what_a_killed_process_left_half_done_is_done_again() {
    let (source, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = small_archive(source.path());
    let part = cache.path().join("hello.part");
    std::fs::create_dir(&part).unwrap();
    std::fs::write(part.join("half"), "").unwrap();
    let download = cache.path().join("archives/hello.tgz.download");
    std::fs::create_dir_all(&download).unwrap();
    std::fs::write(download.join("hello.tgz"), "hal").unwrap();
    let dir = ensure_with(cache.path(), &archive, copy_to(source.path())).unwrap();
    assert!(dir.join("hello.txt").exists() && !dir.join("half").exists());
    assert!(!part.exists() && !download.exists());
}

#[test]
fn many_at_once_fetch_once() {
    let (source, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = small_archive(source.path());
    let downloads = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let dir = ensure_with(cache.path(), &archive, |to| {
                    downloads.fetch_add(1, Ordering::SeqCst);
                    copy_to(source.path())(to)
                });
                assert!(dir.unwrap().join("hello.txt").exists());
            });
        }
    });
    assert_eq!(downloads.load(Ordering::SeqCst), 1);
}

#[test]
fn a_missing_package_manager_is_named() {
    let watched = tempfile::tempdir().unwrap();
    let error = run_installer("hello", &Command::new("no-such-npm"), watched.path(), 1);
    let text = format!("{:#}", error.unwrap_err());
    assert!(text.contains("install no-such-npm"), "{text}");
}

#[test]
fn a_failing_package_manager_is_quoted() {
    let watched = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "echo no such package >&2; exit 3"]);
    let error = run_installer("hello", &command, watched.path(), 1).unwrap_err();
    assert!(format!("{error:#}").contains("no such package"), "{error:#}");
}
