# Write a repository of twelve commits: a token comes in with the fifth and goes with the sixth.
set -eu
mkdir -p /app/project
cd /app/project
export HOME=/tmp GIT_AUTHOR_NAME=Robin GIT_AUTHOR_EMAIL=robin@example.test
export GIT_COMMITTER_NAME=Robin GIT_COMMITTER_EMAIL=robin@example.test
git init -q -b main .
rm -f .git/hooks/*
for number in 1 2 3 4 5 6 7 8 9 10 11 12; do
    export GIT_AUTHOR_DATE="2026-01-01T00:00:$number +0000" GIT_COMMITTER_DATE="2026-01-01T00:00:$number +0000"
    echo "line $number" >> notes.txt
    echo "print($number)" > "step$number.py"
    if [ "$number" = 5 ]; then
        mkdir deploy
        printf 'HOST=deploy.example.test\nDEPLOY_TOKEN=tok_%s\n' "$(echo git-secret | sha256sum | cut -c 1-32)" > deploy/prod.env
    fi
    if [ "$number" = 6 ]; then
        echo 'HOST=deploy.example.test' > deploy/prod.env
    fi
    git add -A
    git commit -q -m "Step $number"
done
git gc -q
