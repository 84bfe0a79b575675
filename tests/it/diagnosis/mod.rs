//! What the library finds out about a server.

mod doctor;
