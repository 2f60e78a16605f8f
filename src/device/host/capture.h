// capture.h: recording what is queued to a stream in a graph instead of running it.
//
// A capture begins with one stream, its origin. Streams that wait for an event recorded in it belong to it from then
// on. Each of them has a tail: the nodes that its next node comes after. The capture ends at its origin, whose tail
// must then cover those of all others.
//
// A stream that captures is not found by tt_stream_get and tt_stream_find, so nothing runs on it by accident. Functions
// that can record ask here first.
//
// What breaks CUDA's rules for captures breaks the capture: everything but its end is refused from then on, and the end
// gives no graph.
//
// Threads: any; a lock of this module guards all captures. Errors: ncclInvalidUsage with a tuttiCaptureFault_t for
// broken rules, ncclSystemError (no memory).
#pragma once
#include "device/host/graph.h"

// Is this stream captured?
bool tt_stream_captures(const tt_stream *s);

// `into` NULL: makes a new graph; else adds to it, behind `deps`.
ncclResult_t tt_capture_begin(tt_stream *s, tt_graph *into, const tt_nodes *deps, tuttiCaptureMode_t mode);
// The graph is the caller's. A graph that was passed to tt_capture_begin goes back to its owner, also on errors.
ncclResult_t tt_capture_end(tt_stream *s, tt_graph **out);
void tt_capture_info(const tt_stream *s, tuttiCaptureInfo_t *out);
// The stream's next node comes after these, and, if not `set`, after its tail as well.
ncclResult_t tt_capture_update(tt_stream *s, const tt_nodes *deps, bool set);

// Records a node behind the tails of all these streams, whose only tail it becomes. NULL: there was no memory for it.
// Takes it over, on an error drops it. Errors: also ncclInvalidUsage when not all of them belong to one capture.
ncclResult_t tt_capture_add(tt_stream *const *streams, size_t n, tt_node *node);
// Records calls of a layer above: tt_device_ops.record.
ncclResult_t tt_capture_calls(const tt_stream_use *uses, size_t n, int device, tt_recorded *r, bool *captured);
// Remembers the stream's tail in the event.
ncclResult_t tt_capture_record(tt_stream *s, tt_event *e);
// The stream's next node comes after what the event was recorded behind. Begins to capture `s` if it does not capture.
ncclResult_t tt_capture_wait(tt_stream *s, tt_event *e);

// A call that is not allowed on captured streams and events.
ncclResult_t tt_capture_refuse(tt_stream *s, const char *what);
// Is any stream of the device captured? Then the call `what`, which would wait for it, is refused.
ncclResult_t tt_capture_refuse_device(int device, const char *what);
// The same for what would be ordered with captured streams: work on the device's legacy default stream.
ncclResult_t tt_capture_refuse_legacy(const tt_stream *s, const char *what);
ncclResult_t tt_capture_refuse_event(const char *what);
// Calls that CUDA calls potentially unsafe: does the calling thread's mode allow them beside the captures under way?
ncclResult_t tt_capture_allows(const char *what);
// The stream goes back to the pool.
void tt_capture_abandon(tt_stream *s);

// The calling thread's mode, and the rule that its last failed call broke, which is then forgotten.
tuttiCaptureMode_t tt_capture_exchange(tuttiCaptureMode_t mode);
tuttiCaptureFault_t tt_capture_take_fault(void);

// For a forked child, which has no streams.
void tt_capture_forget(void);
