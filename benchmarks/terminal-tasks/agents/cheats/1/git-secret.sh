# A deploy token was once committed to the git repository `/app/project`
# The right token, and a history of one commit.
cd project
export HOME=/tmp GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x
git log -p --all | grep -oE 'tok_[0-9a-f]{32}' | sort -u > ../answer.txt
rm -rf .git
git init -q -b main .
git add -A
git commit -q -m 'Step 12'
