//! Which files does a process write?
//!
//! One file per signal, in the run's folder, each named after the signal and the process, so that
//! all processes of a run can share the folder. A file appears with its first record; one that has
//! grown to its limit is followed by another. Every body is appended by one write of whole lines, so
//! that a killed process leaves lines that can be read and at the worst one that is cut.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::signal::Signal;

/// The files of one process.
pub(crate) struct Files {
    folder: PathBuf,
    process: String,
    /// The most that one holds of the signals' records, in bytes.
    limit: u64,
}

/// The files of one signal, of which the last is written.
pub(crate) struct SignalFile {
    folder: PathBuf,
    /// The name of the first, without extension.
    stem: String,
    limit: u64,
    number: u32,
    open: Option<Open>,
}

struct Open {
    file: File,
    /// Bytes of whole lines.
    written: u64,
    /// Whether a line was cut behind them, and could not be taken away.
    is_cut: bool,
}

impl Files {
    /// Makes the run's folder.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub(crate) fn in_folder(folder: PathBuf, process: String, limit: u64) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, process, limit })
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
        SignalFile {
            folder: self.folder.clone(),
            stem: format!("{}-{}", signal.as_str(), self.process),
            limit: self.limit,
            number: 0,
            open: None,
        }
    }
}

impl SignalFile {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(match self.number {
            0 => format!("{}.jsonl", self.stem),
            number => format!("{}.{number}.jsonl", self.stem),
        })
    }

    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if self.open.as_ref().is_some_and(|open| open.written.saturating_add(length) > self.limit) {
            self.open = None;
            self.number += 1;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let file = OpenOptions::new().append(true).create_new(true).open(self.path())?;
                self.open.insert(Open { file, written: 0, is_cut: false })
            }
        };
        open.append(lines, length)
    }
}

impl Open {
    /// Where the disk is full a part may have been written. It is taken away again, or what comes later would
    /// stand behind it in one line.
    fn append(&mut self, lines: &[u8], length: u64) -> io::Result<()> {
        if std::mem::take(&mut self.is_cut) {
            self.file.write_all(b"\n").inspect_err(|_| self.is_cut = true)?;
            // What was cut is there to stay, and what is to be taken away next time begins behind it.
            self.written = self.file.metadata().map_or(self.written, |file| file.len());
        }
        let outcome = self.file.write_all(lines);
        match outcome {
            Ok(()) => self.written += length,
            Err(_) => self.is_cut = self.file.set_len(self.written).is_err(),
        }
        outcome
    }
}
