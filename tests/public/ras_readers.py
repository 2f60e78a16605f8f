# ras_readers.py NCCLRAS PORT STATE: the programs that read NCCL's RAS reports, unmodified, on a job of three processes that is in STATE:
# healthy (each rank has launched three all-reduces), late (rank 1 has not launched the fourth), dead (rank 1's process has ended).
#   Ray     ray.train.v2._internal.callbacks.nccl_ras, as installed: it runs NCCLRAS
#   SGLang  nccl_ras.py of the checkout in TUTTI_RAS_SGLANG; needs msgspec. It speaks to PORT. What it imports of SGLang is replaced
# Exit status 0: what they say is right; 77: none of them is here.
import importlib.util, os, sys, time, types

ncclras, port, state = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ['NCCL_RAS_ADDR'] = 'localhost:%d' % port
ran = 0

try:
    from ray.train.v2._internal.callbacks import nccl_ras as ray
except ImportError as e:
    print('not run: Ray:', e)
    ray = None
if ray:
    reports = []
    for form in ('json', 'json', 'text'):
        answer = ray.run_ncclras(ncclras, 8.0, form)
        assert answer['ok'], answer
        reports.append(answer['stdout'] if form == 'text' else ray.parse_ras_schema(answer['stdout']))
    assert 'Job summary' in reports[2], reports[2]
    report = reports[1]
    (comm, ranks), = report.comm_op_counts.items()
    status = report.comm_rank_status[comm]
    expected = {'healthy': {0: 3, 1: 3, 2: 3}, 'late': {0: 4, 1: 3, 2: 4}, 'dead': {0: 3, 2: 3}}[state]
    assert {r: counts['AllReduce'] for r, counts in ranks.items()} == expected, ranks
    assert state == 'dead' or set(status.values()) == {'RUNNING'}, status
    assert report.mismatched_comms == ({comm} if state == 'late' else set()), report
    moved = ray.compute_report_op_diff(reports[0], report)[comm]
    assert all(n == 0 for counts in moved.values() for n in counts.values()), moved
    ran += 1

sglang = os.environ.get('TUTTI_RAS_SGLANG', '')
if sglang:
    path = os.path.join(sglang, 'python/sglang/srt/distributed/nccl_ras.py') if os.path.isdir(sglang) else sglang
    for name in ('sglang', 'sglang.srt', 'sglang.srt.environ'):
        sys.modules[name] = types.ModuleType(name)
    sys.modules['sglang.srt.environ'].envs = None
    spec = importlib.util.spec_from_file_location('nccl_ras', path)
    reader = importlib.util.module_from_spec(spec)
    sys.modules['nccl_ras'] = reader
    spec.loader.exec_module(reader)
    client = reader.RasSocketClient.from_endpoint(os.environ['NCCL_RAS_ADDR'])
    detector = reader.RasDetector(stuck_polls=3)
    for i in range(2):
        found = detector.evaluate(client.poll_status(), time.time())
    wanted = {'healthy': 'HEALTHY', 'late': 'SUSPECT', 'dead': 'DEAD'}[state]
    dead = int(state == 'dead')
    assert found.poll_success and found.last_collection_age_sec is not None, found
    assert found.worst_state.name == wanted, found
    assert found.total_dead == dead and found.total_missing == dead and len(found.per_comm) == 1, found
    finding, = found.per_comm.values()
    assert finding.divergence == ({'AllReduce': 1} if state == 'late' else {}), found
    ran += 1
else:
    print('not run: SGLang: TUTTI_RAS_SGLANG is not set')
sys.exit(0 if ran else 77)
