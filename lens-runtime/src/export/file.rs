//! Which files does a process write?
//!
//! One file per signal, in the run's folder, each named after the signal and the process, so that
//! all processes of a run can share the folder. A file appears with its first record. Every batch
//! is appended by one write of whole lines, so that a killed process leaves lines that can be read
//! and at the worst one that is cut.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::signal::Signal;

/// The files of one process.
pub(crate) struct Files {
    folder: PathBuf,
    process: String,
}

/// The file of one signal.
pub(crate) struct SignalFile {
    path: PathBuf,
    open: Option<File>,
}

impl Files {
    /// Makes the run's folder.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub(crate) fn in_folder(folder: PathBuf, process: String) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, process })
    }

    /// Writes a file of its own, such as the configuration.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write_once(&self, stem: &str, extension: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.folder.join(format!("{stem}-{}.{extension}", self.process));
        File::create_new(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    }

    /// The file of a signal, which appears with its first record.
    pub(crate) fn of_signal(&self, signal: Signal) -> SignalFile {
        let path = self.folder.join(format!("{}-{}.jsonl", signal.as_str(), self.process));
        SignalFile { path, open: None }
    }
}

impl SignalFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let file = match &mut self.open {
            Some(file) => file,
            None => {
                let created = OpenOptions::new().append(true).create_new(true).open(&self.path)?;
                self.open.insert(created)
            }
        };
        file.write_all(lines)
    }
}
