//! Which files does a process write?
//!
//! One file per signal, in the run's folder, each named after the signal and the process, so that
//! all processes of a run can share the folder. A file appears with its first record. Every batch
//! is appended by one write of whole lines, so that a killed process leaves lines that can be read
//! and at the worst one that is cut.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::delivery::Signal;

/// The files of one process.
pub(crate) struct Files {
    folder: PathBuf,
    process: String,
    open: [Option<File>; 3],
}

impl Files {
    /// Makes the run's folder.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub(crate) fn in_folder(folder: PathBuf, process: String) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, process, open: [None, None, None] })
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

    pub(crate) fn append(&mut self, signal: Signal, lines: &str) -> io::Result<()> {
        let slot = &mut self.open[signal as usize];
        let file = match slot {
            Some(file) => file,
            None => slot.insert(create(&self.folder, signal, &self.process)?),
        };
        file.write_all(lines.as_bytes())
    }
}

fn create(folder: &Path, signal: Signal, process: &str) -> io::Result<File> {
    let path = folder.join(format!("{}-{process}.jsonl", signal.as_str()));
    OpenOptions::new().append(true).create_new(true).open(path)
}
