# ras_schema.py REPORT: is REPORT, a file, a STATUS in JSON as docs/ras.schema.json has it? By jsonschema where Python has it, and by the rules below, which
# know as much of JSON Schema as that file needs. Exit status 0: yes.
import json, os, re, sys

TYPES = {'object': dict, 'array': list, 'string': str, 'boolean': bool, 'integer': int, 'number': (int, float)}

def check(value, rule, at):
    kind = TYPES[rule['type']]
    assert isinstance(value, kind) and (kind is bool or not isinstance(value, bool)), (at, value)
    assert value >= rule.get('minimum', value) if rule['type'] in ('integer', 'number') else True, (at, value)
    assert value in rule.get('enum', [value]) and re.search(rule.get('pattern', ''), str(value)), (at, value)
    if kind is dict:
        assert set(rule['required']) <= set(value) <= set(rule['properties']), (at, sorted(value))
        for key in value:
            check(value[key], rule['properties'][key], at + '.' + key)
    if kind is list:
        for item in value:
            check(item, rule['items'], at + '[]')

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../docs/ras.schema.json')) as f:
    schema = json.load(f)
with open(sys.argv[1]) as f:
    report = json.load(f)
check(report, schema, '')
try:
    import jsonschema
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(report, schema)
except ImportError:
    pass
assert report['communicators_count'] == len(report['communicators'])
for c in report['communicators']:
    assert c['ranks_count'] == len(c['ranks']) and c['missing_ranks_count'] == len(c['missing_ranks']), c
    assert c['size'] == c['ranks_count'] + c['missing_ranks_count'], c
    assert [r['rank'] for r in c['tutti']['ranks']] == [r['rank'] for r in c['ranks']], c
