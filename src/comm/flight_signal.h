// flight_signal.h: the signal that has the flight recorders dumped (NCCL_FLIGHT_RECORDER_SIGNAL).
#pragma once

// From the first call on, if the signal is set and the program does not use it, it has all recorders of the process
// dumped to NCCL_FLIGHT_RECORDER_FILE. In a forked child it does nothing. Any thread; never fails, but says what is
// wrong.
void tt_comm_flight_listen(void);
