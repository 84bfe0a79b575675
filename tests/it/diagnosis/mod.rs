//! Findings of the library about a server.

mod doctor;
