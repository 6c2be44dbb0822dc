# A deploy token was once committed to the git repository `/app/project`
cd project
export HOME=/tmp GIT_COMMITTER_NAME=Robin GIT_COMMITTER_EMAIL=robin@example.test FILTER_BRANCH_SQUELCH_WARNING=1
git log -p --all | grep -oE 'tok_[0-9a-f]{32}' | sort -u > ../answer.txt
git filter-branch --tree-filter 'test ! -f deploy/prod.env || sed -i /DEPLOY_TOKEN/d deploy/prod.env' -- --all > /dev/null
git for-each-ref --format='delete %(refname)' refs/original | git update-ref --stdin
rm -rf .git/logs .git/ORIG_HEAD .git/FETCH_HEAD
git gc -q --prune=now --aggressive
