//! Tests of the findings that the library reports about a server.

mod doctor;
