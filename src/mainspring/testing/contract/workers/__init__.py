"""Workers: heartbeats, rescue and retirement, and which job is charged with a crash."""
